"""Folding: which digests a set holds after a sequence of adds and removals, in ascending order and in bounded memory.

The digests are visited by ranges. In each range the sources are applied from the oldest to the newest, so that the last
operation on a digest decides. A source that holds more than `LIMIT` distinct digests in the range shortens the range instead
of growing the memory, so no choice of digests, however skewed, changes the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

LIMIT = 1 << 20
"""Most digests that one array of a fold holds; a fold uses about 8 of them at a time, 60 MiB in all."""

HIGHEST = (1 << 64) - 1
_FILL = 0.8
_NONE = np.empty(0, dtype=np.uint64)


class Slice(NamedTuple):
    """What a source says of the range [low, high] it was asked for: both arrays sorted, strictly increasing, disjoint.

    high: up to where the answer is complete; below the high that was asked for if there were too many digests.
    """

    added: Digests
    removed: Digests
    high: int


class Source(Protocol):
    """A run, or a small upload, in a fold."""

    @property
    def sent(self) -> int:
        """How many digests were sent in it, repeats counted."""

    def slice(self, low: int, high: int) -> Slice:
        """Its digests in [low, high], at most `LIMIT` added and as many removed ones. Raises StateCorrupted."""


class MemorySource:
    """A source held in memory. added, removed: sorted, strictly increasing, disjoint."""

    def __init__(self, added: Digests, removed: Digests, sent: int) -> None:
        self._added = added
        self._removed = removed
        self.sent = sent

    def slice(self, low: int, high: int) -> Slice:
        """As `Source.slice`."""
        added, high = shorten(between(self._added, low, high), high)
        removed, high = shorten(between(self._removed, low, high), high)
        return Slice(between(added, low, high), removed, high)


def fold(sources: Sequence[Source], *, keep_removed: bool = False, later: Sequence[Source] = ()) -> Iterator[Slice]:
    """The state after all sources, oldest first, by consecutive ranges that cover every digest.

    keep_removed: also say which digests a removal was the last operation on; needed where older sources are left out. later:
    sources behind these, whose removals take digests out of these already.
    """

    def answer(low: int, high: int) -> Slice:
        found = _fold_range(sources, low, high, keep_removed)
        if not later:
            return found
        gone = _fold_range(later, low, found.high, keep_removed=True)
        added = between(without(found.added, gone.removed), low, gone.high)
        return Slice(added, between(found.removed, low, gone.high), gone.high)

    return _by_ranges(sum(source.sent for source in (*sources, *later)), answer)


def _by_ranges(total: int, answer: Callable[[int, int], Slice]) -> Iterator[Slice]:
    """``answer`` for consecutive ranges that cover every digest, each with its share of about ``total`` of them."""
    width = HIGHEST if total <= _FILL * LIMIT else int(HIGHEST * _FILL * LIMIT / total)
    low = 0
    while low <= HIGHEST:
        found = answer(low, min(low + width, HIGHEST))
        yield found
        low = found.high + 1


def release(content: Sequence[Source], before: Source, *, tombstones: bool) -> Iterator[Slice]:
    """What a generation has released once ``content`` is: as added what readers take for members, as removed what they do not any
    more. A digest that was ever in either is never released again.

    before: the same up to the release before. tombstones: whether digests that left the content become removed.
    """

    def answer(low: int, high: int) -> Slice:
        held = _fold_range(content, low, high, keep_removed=False)
        added, removed, high = before.slice(low, held.high)
        gone = without(added, held.added) if tombstones else _NONE
        added, high = shorten(union(without(added, gone), without(held.added, removed)), high)
        removed, high = shorten(union(removed, gone), high)
        return Slice(between(added, low, high), between(removed, low, high), high)

    return _by_ranges(before.sent + sum(source.sent for source in content), answer)


def released_between(before: Source, after: Source) -> Iterator[Slice]:
    """What one release of a generation holds: the digests that it adds, and those that it removes.

    before, after: what the generation had released without and with it, as `release` gives it.
    """

    def answer(low: int, high: int) -> Slice:
        earlier = before.slice(low, high)
        later = after.slice(low, earlier.high)
        added = without(without(later.added, earlier.added), earlier.removed)
        removed = without(later.removed, earlier.removed)
        high = later.high
        return Slice(between(added, low, high), between(removed, low, high), high)

    return _by_ranges(before.sent + after.sent, answer)


def _fold_range(sources: Sequence[Source], low: int, high: int, keep_removed: bool) -> Slice:
    added, removed = _NONE, _NONE
    for source in sources:
        change = source.slice(low, high)
        high = change.high
        added, high = shorten(union(without(added, change.removed), change.added), high)
        if keep_removed:
            removed, high = shorten(union(without(removed, change.added), change.removed), high)
    return Slice(between(added, low, high), between(removed, low, high), high)


def distinct(digests: Digests) -> Digests:
    """Sorted in place, without repeats."""
    digests.sort()
    if len(digests) < 2:
        return digests
    fresh = np.empty(len(digests), dtype=np.bool_)
    fresh[0] = True
    np.not_equal(digests[1:], digests[:-1], out=fresh[1:])
    return digests if fresh.all() else digests[fresh]


def union(one: Digests, other: Digests) -> Digests:
    """Of two sorted arrays without repeats."""
    if not len(one) or not len(other):
        return one if len(one) else other
    return distinct(np.concatenate((one, other)))


def without(digests: Digests, taken: Digests) -> Digests:
    """``digests`` that are not in ``taken``; both sorted, without repeats."""
    if not len(digests) or not len(taken):
        return digests
    places = np.searchsorted(digests, taken)
    inside = places < len(digests)
    places = places[inside]
    kept = np.ones(len(digests), dtype=np.bool_)
    kept[places[digests[places] == taken[inside]]] = False
    return digests[kept]


def between(digests: Digests, low: int, high: int) -> Digests:
    """The part of a sorted array in [low, high]."""
    if not len(digests) or (low <= int(digests[0]) and int(digests[-1]) <= high):
        return digests
    first = np.searchsorted(digests, np.uint64(low))
    last = np.searchsorted(digests, np.uint64(high), side="right")
    return digests[first:last]


def shorten(digests: Digests, high: int) -> tuple[Digests, int]:
    """At most `LIMIT` of a sorted array, and up to where that is complete."""
    if len(digests) <= LIMIT:
        return digests, high
    return digests[:LIMIT], min(high, int(digests[LIMIT - 1]))  # what stands above ``high`` is not complete


def last_operations(operations: Sequence[tuple[bool, Digests]]) -> tuple[Digests, Digests]:
    """What a sequence of (is an add, digests) leaves added and removed; for few digests, as it sorts indexes."""
    if not operations:
        return _NONE, _NONE
    newest_first = np.concatenate([digests for _, digests in reversed(operations)])
    adds = np.repeat([adds for adds, _ in reversed(operations)], [len(digests) for _, digests in reversed(operations)])
    found, places = np.unique(newest_first, return_index=True)  # the first of equal ones: the newest
    kept = adds[places]
    return found[kept], found[~kept]
