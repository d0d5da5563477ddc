"""Raw bit vectors as files, mapped into memory. A file is the packed bits and nothing else; its name is the set's id.

Bits are only ever OR-ed in, so whatever mixture of old and new pages a crash leaves is part of the truth, and merging the
same upload again completes it. That holds for one writer at a time: two unsynchronised writers can undo each other's bits,
and keeping them apart is the caller's part (one lock per set), as the state folder's lock keeps other processes out.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.errors import StateCorrupted
from veilset_server.adapters.durability import new_file, relative_name, sync_folder, sync_mapping

_NAME = re.compile(r"([1-9][0-9]*)\.bits", re.ASCII)


class RawVectors:
    """The folder of raw vectors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, set_id: int, length: int) -> None:
        """A vector of ``length`` zero bytes; one that is there already stays as it is. Raises StorageFull, StateCorrupted.

        All blocks are allocated now, since a write through the map to a block that a full disk cannot give would kill the
        process (SIGBUS). File systems that copy on every write cannot promise this; the state folder should not be on one.
        """
        path = self._path(set_id)
        if path.exists():
            self._check(path, path.stat(), length)
            return
        with new_file(path) as descriptor:
            os.posix_fallocate(descriptor, 0, length)

    @contextmanager
    def open(self, set_id: int, length: int) -> Iterator[NDArray[np.uint8]]:
        """The vector as a writable map of shape (length,). Raises StateCorrupted if the file is not as declared."""
        path = self._path(set_id)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise StateCorrupted(f"{relative_name(path)}: missing or unreadable", file=relative_name(path)) from error
        try:
            self._check(path, os.fstat(descriptor), length)
            mapping = mmap.mmap(descriptor, length, mmap.MAP_SHARED)
        finally:
            os.close(descriptor)
        # The map goes when the last array on it goes: closing it under an array still in use is what Python refuses.
        yield np.frombuffer(mapping, dtype=np.uint8)

    def _check(self, path: Path, status: os.stat_result, length: int) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size != length:
            raise StateCorrupted(
                f"{relative_name(path)}: {status.st_size} bytes long, has to be {length}", file=relative_name(path)
            )

    def exists(self, set_id: int) -> bool:
        """Whether the set has a vector."""
        return self._path(set_id).exists()

    def set_ids(self) -> list[int]:
        """Ids of all sets that have a vector."""
        matches = (_NAME.fullmatch(entry.name) for entry in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def remove(self, set_id: int) -> None:
        """Delete the vector; no error if it is gone."""
        self._path(set_id).unlink(missing_ok=True)
        sync_folder(self._folder)

    def _path(self, set_id: int) -> Path:
        return self._folder / f"{set_id:d}.bits"


def sync_vector(vector: NDArray[np.uint8]) -> None:
    """Return once the map that ``vector`` is a view of is on disk, all of it."""
    base: object = vector
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap):
        raise TypeError("vector: not a view of a mapped raw vector")
    sync_mapping(base, "a raw vector")
