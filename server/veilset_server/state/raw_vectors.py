"""Raw bit vectors as files, mapped into memory while they change. A file is the packed bits and nothing else; its name is the
set's id. Beside it lies the file of its checksums (`vector_sums`), which is replaced when a merge begins and when it ends.

Bits are only ever OR-ed in, so whatever mixture of old and new pages a crash leaves is part of the truth, and merging the
same upload again completes it. That holds for one writer at a time: two unsynchronised writers can undo each other's bits,
and keeping them apart is the caller's part (one lock per set), as the state folder's lock keeps other processes out.

What is noticed: every bit that anything but a merge changed, before the chunk that it is in is published or merged into. The
one window left is that of vectors longer than `PRIVATE_BYTES`: in a chunk that an upload touches, between a crash in the
middle of its merge and the start that completes it, a changed bit cannot be told from a half-written page. An older
copy of vector and checksums alike is noticed by the root of the checksums, which the ledger keeps. Who changes all three is
not: these are checksums, not signatures.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.errors import StateCorrupted
from veilset_server.ports import VECTOR_CHUNK_BYTES as CHUNK_BYTES
from veilset_server.records import VectorRecord
from veilset_server.state import vector_sums
from veilset_server.state.durability import new_file, relative_name, storage_errors, sync_folder, sync_mapping
from veilset_server.state.vector_sums import NO_MERGE, SUM_BYTES, VectorSums, chunk_count, mark_of

PRIVATE_BYTES = 32 << 20
"""Up to this length a merge works on a copy in memory."""

_NAME = re.compile(r"([1-9][0-9]*)\.bits", re.ASCII)


class RawVectors:
    """The folder of raw vectors and their checksums."""

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
        else:
            with new_file(path) as descriptor:
                os.posix_fallocate(descriptor, 0, length)
        if not self._sums_path(set_id).exists():  # a crash came between; what is no zero will be noticed
            self._write(VectorSums(set_id, length, NO_MERGE, vector_sums.sums_of_zeros(length)))

    def read(self, set_id: int, length: int, record: VectorRecord) -> Iterator[NDArray[np.uint8]]:
        """The vector by chunks, each a copy that was checked. Raises StateCorrupted at the first that is not what was
        merged, or at once if the vector or its checksums are missing, damaged, not as declared or not the ledger's."""
        os.close(self._open(set_id, length, os.O_RDONLY))
        return self._read(self._read_sums(set_id, length, record))

    def root(self, set_id: int, length: int) -> bytes:
        """SHA-256 of all checksums, for the ledger. Raises StateCorrupted."""
        return vector_sums.read_sums(self._sums_path(set_id), set_id, length).root

    def _read(self, sums: VectorSums) -> Iterator[NDArray[np.uint8]]:
        for index, chunk in enumerate(self._chunks(sums.set_id, sums.length)):
            if not sums.matches(index, chunk):
                raise _changed(self._path(sums.set_id), index)
            yield np.frombuffer(chunk, dtype=np.uint8)

    def _chunks(self, set_id: int, length: int) -> Iterator[bytes]:
        descriptor = self._open(set_id, length, os.O_RDONLY)
        try:
            for start in range(0, length, CHUNK_BYTES):
                with storage_errors(relative_name(self._path(set_id))):
                    chunk = os.pread(descriptor, CHUNK_BYTES, start)
                yield chunk
        finally:
            os.close(descriptor)

    @contextmanager
    def change(
        self,
        set_id: int,
        length: int,
        upload_id: str,
        record: VectorRecord,
        touched: Callable[[], Collection[int]],
        positions: int | None,
    ) -> Iterator[NDArray[np.uint8]]:
        """The vector as a writable map for the merge of one upload; see `ports.VectorStore.change_vector`."""
        with self.open(set_id, length) as vector:
            sums = self._read_sums(set_id, length, record)
            base = vector_sums.ledger_root(record, length)
            everything = range(chunk_count(length))
            # Many bits are in every chunk, or nearly: then looking for where they are is no use.
            looking_is_no_use = positions is not None and positions >= len(everything)
            chunks = everything if looking_is_no_use else sorted(touched())
            if length <= PRIVATE_BYTES:
                with self._change_copy(sums, vector, chunks, mark_of(upload_id), base) as copy:
                    yield copy
            else:
                with self._change_in_place(sums, vector, chunks, mark_of(upload_id), base, touched):
                    yield vector

    @contextmanager
    def _change_copy(
        self, sums: VectorSums, vector: NDArray[np.uint8], chunks: Collection[int], mark: bytes, base: bytes
    ) -> Iterator[NDArray[np.uint8]]:
        """What the merge will make of the vector is known, and written down, before the file changes. So also the merge that
        completes an interrupted one can tell whether every bit is as it has to be."""
        interrupted = sums.merging == mark and bool(sums.expected)
        if not interrupted:
            self._check_before(sums, vector, chunks)
        copy = vector.copy()
        yield copy
        new = _summed(sums, copy, chunks)
        after = replace(sums, merging=NO_MERGE, sums=new, expected=b"", merged=mark, base=base)
        if interrupted and after.sums != sums.expected:
            raise _changed(self._path(sums.set_id), _first_difference(after.sums, sums.expected))
        self._write(replace(sums, merging=mark, expected=after.sums))
        # Also what stays as it is: the time of it would tell a producer whether its elements are new.
        for index in chunks:
            piece = slice(index * CHUNK_BYTES, (index + 1) * CHUNK_BYTES)
            vector[piece] = copy[piece]
        sync_vector(vector)
        self._write(after)

    @contextmanager
    def _change_in_place(
        self,
        sums: VectorSums,
        vector: NDArray[np.uint8],
        chunks: Collection[int],
        mark: bytes,
        base: bytes,
        touched: Callable[[], Collection[int]],
    ) -> Iterator[None]:
        """For vectors too long to hold twice. Where this very merge was interrupted, the chunks that it touches may be
        half-way, and pass; all others are checked."""
        self._check_before(sums, vector, chunks, half_way=touched if sums.merging == mark else tuple)
        self._write(replace(sums, merging=mark))
        yield
        sync_vector(vector)
        new = _summed(sums, vector, chunks)
        self._write(replace(sums, merging=NO_MERGE, sums=new, merged=mark, base=base))

    def _check_before(
        self,
        sums: VectorSums,
        vector: NDArray[np.uint8],
        chunks: Collection[int],
        half_way: Callable[[], Collection[int]] = tuple,
    ) -> None:
        wrong = [index for index in chunks if not sums.matches(index, _chunk(vector, index))]
        if wrong:
            forgiven = frozenset(half_way())
            wrong = [index for index in wrong if index not in forgiven]
        if wrong:
            raise _changed(self._path(sums.set_id), wrong[0])

    @contextmanager
    def open(self, set_id: int, length: int) -> Iterator[NDArray[np.uint8]]:
        """The vector as a writable map of shape (length,), unchecked. Raises StateCorrupted if the file is not as declared."""
        descriptor = self._open(set_id, length, os.O_RDWR)
        try:
            mapping = mmap.mmap(descriptor, length, mmap.MAP_SHARED)
        finally:
            os.close(descriptor)
        # The map goes when the last array on it goes: closing it under an array still in use is what Python refuses.
        yield np.frombuffer(mapping, dtype=np.uint8)

    def _open(self, set_id: int, length: int, flags: int) -> int:
        path = self._path(set_id)
        try:
            descriptor = os.open(path, flags | os.O_NOFOLLOW)
        except OSError as error:
            raise StateCorrupted(f"{relative_name(path)}: missing or unreadable", file=relative_name(path)) from error
        try:
            self._check(path, os.fstat(descriptor), length)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, path: Path, status: os.stat_result, length: int) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size != length:
            raise StateCorrupted(
                f"{relative_name(path)}: {status.st_size} bytes long, has to be {length}", file=relative_name(path)
            )

    def check(self, set_id: int, length: int, record: VectorRecord) -> None:
        """Raises StateCorrupted if the vector or its checksums are missing, not as declared or not the ledger's; does not
        read the vector."""
        os.close(self._open(set_id, length, os.O_RDONLY))
        self._read_sums(set_id, length, record)

    def set_ids(self) -> list[int]:
        """Ids of all sets that have a vector."""
        matches = (_NAME.fullmatch(entry.name) for entry in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def remove(self, set_id: int) -> None:
        """Delete the vector; no error if it is gone. The checksums first, as a start looks for vectors."""
        self._sums_path(set_id).unlink(missing_ok=True)
        self._path(set_id).unlink(missing_ok=True)
        sync_folder(self._folder)

    def add_sums(self) -> None:
        """Make the checksums of vectors that have none, of what they hold now: for folders from before there were any."""
        for set_id in self.set_ids():
            if not self._sums_path(set_id).exists():
                length = self._path(set_id).stat().st_size
                sums = vector_sums.sums_of(self._chunks(set_id, length))
                self._write(VectorSums(set_id, length, NO_MERGE, sums))

    def _read_sums(self, set_id: int, length: int, record: VectorRecord) -> VectorSums:
        found = vector_sums.read_sums(self._sums_path(set_id), set_id, length)
        if not found.belongs_to(record):
            name = relative_name(self._sums_path(set_id))
            raise StateCorrupted(
                f"{name}: not of the same age as the ledger; restore the whole state folder, not a part of it",
                file=name,
            )
        return found

    def _write(self, sums: VectorSums) -> None:
        vector_sums.write_sums(self._sums_path(sums.set_id), sums)

    def _path(self, set_id: int) -> Path:
        return self._folder / f"{set_id:d}.bits"

    def _sums_path(self, set_id: int) -> Path:
        return self._folder / f"{set_id:d}.sums"


def _chunk(vector: NDArray[np.uint8], index: int) -> memoryview:
    return vector[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES].data


def _summed(sums: VectorSums, vector: NDArray[np.uint8], chunks: Collection[int]) -> bytes:
    """The sums with those of ``chunks`` made anew."""
    changed = bytearray(sums.sums)
    for index in chunks:
        changed[index * SUM_BYTES : (index + 1) * SUM_BYTES] = vector_sums.sums_of([_chunk(vector, index)])
    return bytes(changed)


def _first_difference(left: bytes, right: bytes) -> int:
    return (
        next(at for at in range(0, len(left), SUM_BYTES) if left[at : at + SUM_BYTES] != right[at : at + SUM_BYTES])
        // SUM_BYTES
    )


def _changed(path: Path, index: int) -> StateCorrupted:
    name = relative_name(path)
    return StateCorrupted(
        f"{name}: damaged (chunk {index} is not what was merged); upload its elements into a new set, or restore the state "
        "folder",
        file=name,
    )


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
