"""From elements as callers hold them to digests, alike for producers and readers; and the distinct ones of a stream.

What is no element is named by its place. The distinct digests of a stream of any length are found in bounded memory: once there
are too many they go to temporary files, one for each range of digest values, so that equal digests meet in one file and each file
fits in memory. The files lie in the system's folder for such files, only this user can read them, and they are gone with the
process, however it ends. They hold digests, not elements.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from veilset._input.columns import Batch, element_batches, is_null
from veilset.core.elements.hashing import digests, sorted_distinct
from veilset.core.elements.normalization import Element, normalize
from veilset.core.elements.packed import PackedElements, PackedStream, packed_digests
from veilset.core.params import HashParameters, Normalization
from veilset.errors import InvalidInput, must_be

SHOWN = 10

MEMORY_DIGESTS = 1 << 20  # 8 MiB, twice that while they are sorted
FILES = 64
_RANGE_SHIFT = np.uint64(64 - 6)
Digests = NDArray[np.uint64]  # (n,), as `core.elements.hashing.digests` gives them


class InvalidElements:
    """Collects what is no element in a stream: the places of the first ten, and how many there are.

    skip: whether to leave them out; else `refuse` raises once all were seen.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.count = 0
        self._shown: dict[str, list[str]] = {}
        self._first = 0

    @property
    def refused(self) -> bool:
        """Whether `refuse` will raise, so that the rest of the stream is only checked."""
        return self.count > 0 and not self.skip

    def note(self, position: int, place: str, reason: str) -> None:
        """Add one. position: in the stream; place: as text for people; reason: what it must be."""
        self._first = position if not self.count else self._first
        self.count += 1
        if self.count <= SHOWN:
            self._shown.setdefault(reason, []).append(place)

    def refuse(self) -> None:
        """Raise InvalidInput, without the elements in it, if some were not skipped."""
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

    elements: what `veilset._input.columns.batches` takes. Raises InvalidInput with the positions, counted from 0, of what is no
    element, once all are seen; the message has no elements in it.
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
    """The valid elements of files; ``invalid`` collects the others."""

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


class DistinctDigests:
    """Collects digests; use it as a context manager, `add` batches, then go through `batches`.

    memory_digests: how many to hold in memory before files are used. Raises OSError where a file cannot be written.
    """

    def __init__(self, memory_digests: int = MEMORY_DIGESTS) -> None:
        self._memory_digests = memory_digests
        self._held: list[Digests] = []
        self._count = 0
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> DistinctDigests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, hashed: Digests) -> None:
        """Take a batch of digests, shape (n,)."""
        self._held.append(hashed)
        self._count += len(hashed)
        if self._count > self._memory_digests:
            digests = self._take_held()
            if len(digests) > self._memory_digests // 2:
                self._spill(digests)
            else:  # mostly repetitions
                self._held, self._count = [digests], len(digests)

    def batches(self) -> Iterator[Digests]:
        """Every distinct digest once, in rising order; as often as wanted."""
        digests = self._take_held()
        if not self._files:
            self._held = [digests]
            yield digests
            return
        self._spill(digests)
        for file in self._files:
            file.seek(0)
            yield sorted_distinct(np.frombuffer(file.read(), dtype=np.uint64))

    def _take_held(self) -> Digests:
        digests = sorted_distinct(np.concatenate(self._held)) if self._held else np.zeros(0, dtype=np.uint64)
        self._held, self._count = [], 0
        return digests

    def _spill(self, digests: Digests) -> None:
        """Append sorted digests to the files of their ranges."""
        if not self._files:
            for _ in range(FILES):
                file = self._stack.enter_context(tempfile.TemporaryFile(prefix="veilset-"))  # noqa: SIM115 - the stack closes it
                self._files.append(file)
        ranges = (digests >> _RANGE_SHIFT).astype(np.int64)
        ends = np.searchsorted(ranges, np.arange(FILES + 1))
        for part, start, end in zip(self._files, ends[:-1], ends[1:], strict=True):
            part.write(digests[start:end].tobytes())
