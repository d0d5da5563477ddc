"""The distinct digests of a stream of any length, in bounded memory.

Digests are collected in memory. Once there are too many they go to temporary files, one per range of digest values, so that
equal digests meet in one file and each file fits in memory. The files lie in the system's folder for such files, are
readable by this user alone, and are gone with the process whatever ends it. They hold digests, not elements.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.hashing import sorted_distinct

MEMORY_DIGESTS = 1 << 20  # 8 MiB, twice that while they are sorted
FILES = 64

_RANGE_SHIFT = np.uint64(64 - 6)

Digests = NDArray[np.uint64]  # (n,), as `core.elements.hashing.digests` gives them


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
