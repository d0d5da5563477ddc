"""From elements as callers hold them to digests, alike for producers and readers; what is no element is told by its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._input.columns import Batch, element_batches, is_null
from veilset.core.elements.hashing import digests
from veilset.core.elements.normalization import Element, normalize
from veilset.core.elements.packed import PackedElements, PackedStream, packed_digests
from veilset.core.params import HashParameters, Normalization
from veilset.errors import InvalidInput, must_be

SHOWN = 10


class InvalidElements:
    """What was no element in a stream: the first ten by their places, and how many in all.

    skip: whether the stream is to go on without them; else `refuse` raises once all were seen.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.count = 0
        self._shown: dict[str, list[str]] = {}
        self._first = 0

    @property
    def refused(self) -> bool:
        """Whether what comes next is looked at for its own sake only."""
        return self.count > 0 and not self.skip

    def note(self, position: int, place: str, reason: str) -> None:
        """Take one. position: of it in the stream; place: for people to read; reason: what it must be."""
        self._first = position if not self.count else self._first
        self.count += 1
        if self.count <= SHOWN:
            self._shown.setdefault(reason, []).append(place)

    def refuse(self) -> None:
        """Raises InvalidInput, without the elements, where some were not skipped."""
        if not self.refused:
            return
        listed = ", ".join(f"{reason} (not so: {'; '.join(places)})" for reason, places in self._shown.items())
        more = f", and {self.count - SHOWN} more" if self.count > SHOWN else ""
        error = must_be("element", listed + more)
        error.details |= {"position": str(self._first), "invalid": str(self.count)}
        raise error


def digest_batches(
    elements: Iterable[Element], hashing: HashParameters, profile: Normalization, key: bytes | None
) -> Iterator[NDArray[np.uint64]]:
    """Digests of the normalised elements, batch by batch, each uint64 (n,), in bounded memory.

    elements: what `veilset._input.columns.batches` takes. Raises InvalidInput naming the positions, counted from 0, of what is no
    element, once all are seen; the elements themselves are not repeated.
    """
    start, invalid = 0, InvalidElements()
    for batch in element_batches(elements):
        hashed = digest_batch(batch, start, hashing, profile, key, invalid)
        if not invalid.refused:
            yield hashed
        start += len(batch)
    invalid.refuse()


def digest_batch(
    batch: Batch,
    start: int,
    hashing: HashParameters,
    profile: Normalization,
    key: bytes | None,
    invalid: InvalidElements | None = None,
) -> NDArray[np.uint64]:
    """`digest_batches` for one batch; ``start`` is the position of its first element.

    invalid: takes what is no element; only the others' digests are returned then. Without it InvalidInput is raised.
    """
    if key is None and (hashed := packed_digests(batch, hashing, profile)) is not None:
        return hashed
    try:
        normalized = normalize(list(batch), profile)
    except InvalidInput:
        noted = invalid or InvalidElements()
        kept = valid_ones(batch, start, profile, noted)
        if invalid is None:
            noted.refuse()
        normalized = normalize([element for element, good in zip(batch, kept, strict=True) if good], profile)
    return digests(normalized, hashing.scheme, hashing.seed, key)


def valid_ones(batch: Batch, start: int, profile: Normalization, invalid: InvalidElements) -> list[bool]:
    """For each of a batch whether it is an element; ``invalid`` takes those that are not."""
    origin = batch.origin if isinstance(batch, PackedElements) else None
    found = []
    for index, element in enumerate(batch):
        try:
            normalize([element], profile)
        except InvalidInput as refused:
            where = origin.place(index) if origin else _position(start + index, element)
            invalid.note(start + index, where, refused.allowed)
            found.append(False)
        else:
            found.append(True)
    return found


def only_valid(elements: PackedStream, profile: Normalization, invalid: InvalidElements) -> PackedStream:
    """The elements of files without those that are none; ``invalid`` takes these."""

    def blocks() -> Iterator[PackedElements]:
        start = 0
        for block in elements.blocks():
            kept = np.array(valid_ones(block, start, profile, invalid), dtype=np.bool_)
            start += len(block)
            yield block.select(kept)

    return PackedStream(blocks)


def _position(position: int, element: Any) -> str:
    kind = "a null" if is_null(element) else "" if isinstance(element, str | bytes) else type(element).__name__
    return f"index {position}{f', {kind}' if kind else ''}"
