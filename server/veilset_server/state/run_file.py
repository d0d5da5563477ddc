"""Runs that were folded: how several runs become one, and the file that holds the result.

Folding says which digests a set holds after a sequence of adds and removals, in ascending order and in bounded memory. The
digests are visited by ranges. In each range the sources are applied from the oldest to the newest, so that the last operation
on a digest decides. A source that holds more than `LIMIT` distinct digests in the range shortens the range instead of growing
the memory, so no choice of digests, however skewed, changes the bound.

The file holds sorted digests in blocks, each with a checksum, and is never changed:

    block  up to 8,192 digests (8 bytes each), strictly increasing, all added or all removed
    table  for each block: first digest (u64) · 2 · number of digests + 1 if they are removed (u64) · XXH3-64 of the block (u64)
    tail   magic (8) · set id (u64) · number of the run (u64) · number of blocks (u64)

All integers are little-endian. Blocks of one kind come in ascending order. The ledger holds the XXH3-128 of table and tail, so
every byte of the file is covered: a reader gets the digests that were written, or StateCorrupted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from veilset.errors import StateCorrupted
from veilset_server.state.durability import new_file, relative_name, storage_errors, write_all

BLOCK_DIGESTS = 1 << 13
_MAGIC = b"vsrun\0\0\1"
_ENTRY = np.dtype([("first", "<u8"), ("count", "<u8"), ("hash", "<u8")])
_TAIL = struct.Struct("<8sQQQ")
_DIGEST_BYTES = 8

Digests = NDArray[np.uint64]

LIMIT = 1 << 20
"""Most digests that one array of a fold holds; a fold uses about 8 of them at a time, 60 MiB in all."""

HIGHEST = (1 << 64) - 1
_FILL = 0.8
_NONE = np.empty(0, dtype=np.uint64)


def write_run(path: Path, set_id: int, number: int, slices: Iterator[Slice]) -> bytes:
    """Write a run that appears whole and durable, or not at all; returns its checksum for the ledger. Raises StorageFull, and
    what ``slices`` raises."""
    table: list[tuple[int, int, int]] = []
    with new_file(path) as descriptor:
        for found in slices:
            for digests, removed in ((found.added, 0), (found.removed, 1)):
                for start in range(0, len(digests), BLOCK_DIGESTS):
                    block = digests[start : start + BLOCK_DIGESTS].astype("<u8", copy=False)
                    data = block.tobytes()
                    write_all(descriptor, data)
                    table.append((int(block[0]), 2 * len(block) + removed, xxhash.xxh3_64_intdigest(data)))
        end = np.array(table, dtype=_ENTRY).tobytes() + _TAIL.pack(_MAGIC, set_id, number, len(table))
        write_all(descriptor, end)
    return xxhash.xxh3_128_digest(end)


class FoldedRun:
    """A `Source` on such a file. Not to be shared between threads; `close` closes the file."""

    def __init__(self, path: Path, checksum: bytes, sent: int) -> None:
        """checksum: as `write_run` returned it. Raises StateCorrupted naming the file."""
        self.sent = sent
        self._name = relative_name(path)
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise self._damaged("missing or unreadable") from error
        try:
            self._table = self._read_table(checksum)
        except BaseException:
            self.close()
            raise
        counts = np.minimum(self._table["count"] >> np.uint64(1), np.uint64(BLOCK_DIGESTS)).astype(np.int64)
        self._offsets = _DIGEST_BYTES * np.concatenate(([0], np.cumsum(counts)))
        removed = (self._table["count"] & np.uint64(1)).astype(np.bool_)
        self._blocks = np.flatnonzero(~removed), np.flatnonzero(removed)

    def _read_table(self, checksum: bytes) -> NDArray[np.void]:
        length = os.fstat(self._descriptor).st_size
        tail = self._read(max(0, length - _TAIL.size), _TAIL.size)
        blocks = _TAIL.unpack(tail)[3] if len(tail) == _TAIL.size else -1
        start = length - _TAIL.size - blocks * _ENTRY.itemsize
        if blocks < 0 or start < 0:
            raise self._damaged("its end is not as written")
        end = self._read(start, length - start)
        if xxhash.xxh3_128_digest(end) != checksum:
            raise self._damaged("its end is not as written")
        return np.frombuffer(end, dtype=_ENTRY, count=blocks)

    def slice(self, low: int, high: int) -> Slice:
        """As `Source.slice`."""
        added, high = self._part(0, low, high)
        removed, high = self._part(1, low, high)
        return Slice(between(added, low, high), removed, high)

    def _part(self, removed: int, low: int, high: int) -> tuple[Digests, int]:
        blocks = self._blocks[removed]
        firsts = self._table["first"][blocks]
        begin = max(0, int(np.searchsorted(firsts, np.uint64(low), side="right")) - 1)
        end = int(np.searchsorted(firsts, np.uint64(high), side="right"))
        parts: list[Digests] = []
        held = 0
        for block in blocks[begin:end]:
            part = between(self._block(int(block)), low, high)
            held += len(part)
            parts.append(part)
            if held > LIMIT:
                found = np.concatenate(parts)[:LIMIT]
                return found, int(found[-1])
        return (np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)), high

    def _block(self, block: int) -> Digests:
        offset, end = int(self._offsets[block]), int(self._offsets[block + 1])
        data = self._read(offset, end - offset)
        if xxhash.xxh3_64_intdigest(data) != int(self._table["hash"][block]):
            raise self._damaged(f"block {block} is not as written")
        return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)

    def _read(self, offset: int, length: int) -> bytes:
        with storage_errors(self._name):
            return os.pread(self._descriptor, length, offset)

    def _damaged(self, what: str) -> StateCorrupted:
        return damaged_run(self._name, what)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def damaged_run(name: str, what: str) -> StateCorrupted:
    """The refusal that names a run."""
    return StateCorrupted(
        f"{name}: damaged ({what}); restore the file from a copy, or replace what the set holds", file=name
    )


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
