"""The spool of one upload: its digests on disk, batch by batch. When the upload is finished the same file is its run.

    head   magic (8) · set id (u64) · serial of the spool (u64) · XXH3-64 of these
    mark   length of the file in bytes (u64) · last sequence (u64) · XXH3-64 of these
    frame  sequence (u64) · number of digests n (u64) · XXH3-64 of these and of the digests · n digests (8 bytes each)

All integers are little-endian. A batch is acknowledged only when its frame is written and behind that the mark moved past it.
So a frame below the mark that is not whole is damage, and is refused; what lies above the mark and is not whole is what a killed
process was just writing, was never acknowledged, and is cut off. Without the mark a spool that lost its end would look like
one whose last write was torn.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import xxhash

from veilset.errors import NotFound, OutOfSequence, StateCorrupted
from veilset_server.state.durability import (
    new_file,
    relative_name,
    start_writing,
    storage_errors,
    sync_file,
    write_all,
)
from veilset_server.state.run_file import LIMIT, Digests, MemorySource, Slice, damaged_run, distinct, shorten

MAX_BATCH = 1 << 24
"""Digests in one frame."""

_MAGIC = b"vsspool2"
_HEAD = struct.Struct("<8sQQ")
_PAIR = struct.Struct("<QQ")
_HASH = struct.Struct("<Q")
_MARK_OFFSET = _HEAD.size + _HASH.size
_FRAME_HEAD = _PAIR.size + _HASH.size
FIRST_FRAME = _MARK_OFFSET + _FRAME_HEAD
_DIGEST_BYTES = 8
_READ_DIGESTS = 1 << 17


class Spool:
    """An open upload's spool. Not to be shared between threads.

    If two are open on one file (a producer came back while its old stream still hung), the first to append continues and the
    other is refused with OutOfSequence: each append checks, under a lock on the file, that it is as this one left it.
    """

    def __init__(self, path: Path, set_id: int, serial: int) -> None:
        """Open the spool, make it if new, cut off what a crash tore. Raises StorageFull, StateCorrupted (an acknowledged batch
        is damaged)."""
        self._name = relative_name(path)
        self.sequence = 0
        """Highest batch held; 0 for none."""
        self.elements = 0
        """Digests in those batches."""
        self._length = FIRST_FRAME
        self._hash = xxhash.xxh3_128()
        if not path.exists():
            with new_file(path) as descriptor:
                write_all(descriptor, _head(set_id, serial) + _sealed(_PAIR.pack(FIRST_FRAME, 0)))
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            with self._locked(), storage_errors(self._name):
                self._scan(_head(set_id, serial))
                os.ftruncate(self._descriptor, self._length)
                self._write_mark(self._length, self.sequence)
                os.utime(self._descriptor)  # a resumed upload is not abandoned
        except BaseException:
            self.close()
            raise

    def _scan(self, head: bytes) -> None:
        """Count all that is below the mark, and whole frames above it."""
        mark = os.pread(self._descriptor, _FRAME_HEAD, _MARK_OFFSET)
        if os.pread(self._descriptor, _MARK_OFFSET, 0) != head or _sealed(mark[: _PAIR.size]) != mark:
            raise self._damaged("its head is not that of this upload")
        length, sequence = _PAIR.unpack(mark[: _PAIR.size])
        while True:
            if self._length == length and self.sequence != sequence:
                raise self._damaged("batches and mark disagree")
            payload = _read_frame(self._descriptor, self._length, self.sequence + 1)
            if payload is None and self._length >= length:
                return
            if payload is None:
                raise self._damaged(f"acknowledged batch {self.sequence + 1} is not whole")
            crossed = self._length < length
            self._take(payload)
            if crossed and self._length > length:
                raise self._damaged("batches and mark disagree")

    def _take(self, payload: bytes) -> None:
        self._hash.update(payload)
        self._length += _FRAME_HEAD + len(payload)
        self.elements += len(payload) // _DIGEST_BYTES
        self.sequence += 1

    def _damaged(self, what: str) -> StateCorrupted:
        return StateCorrupted(
            f"{self._name}: damaged ({what}); start over under a new upload id", file=self._name, field="upload_id"
        )

    def checksum(self) -> bytes:
        """XXH3-128 of all digests held, in order."""
        return self._hash.digest()

    def append(self, sequence: int, digests: Digests) -> None:
        """Hold the next batch of 1 to `MAX_BATCH` digests, shape (n,).

        Raises OutOfSequence (not sequence + 1, or another stream appended), NotFound (the upload was dropped), StorageFull
        (nothing is held then).
        """
        if sequence != self.sequence + 1:
            raise OutOfSequence(f"batch {sequence}: the next one is {self.sequence + 1}", field="sequence")
        if digests.ndim != 1 or digests.dtype != np.uint64 or not 1 <= len(digests) <= MAX_BATCH:
            raise ValueError(f"digests: {digests.dtype} of shape {digests.shape}, has to be uint64 of shape (n,)")
        payload = digests.astype("<u8", copy=False).tobytes()
        head = _PAIR.pack(sequence, len(digests))
        with self._locked():
            self._check_unchanged()
            end = self._length + _FRAME_HEAD + len(payload)
            try:
                with storage_errors(self._name):
                    self._write(head + _frame_hash(head, payload) + payload)
                    self._write_mark(end, sequence)
            except BaseException:
                with suppress(OSError):  # what stays is above the mark; the next one to open the spool cuts it off
                    self._write_mark(self._length, self.sequence)
                    os.ftruncate(self._descriptor, self._length)
                raise
        start_writing(self._descriptor, self._length, end - self._length)
        self._take(payload)

    def _write(self, data: bytes) -> None:
        offset, rest = self._length, memoryview(data)
        while rest:  # a write that stops early (full disk, quota) is repeated, which shows why
            written = os.pwrite(self._descriptor, rest, offset)
            offset, rest = offset + written, rest[written:]

    def _write_mark(self, length: int, sequence: int) -> None:
        os.pwrite(self._descriptor, _sealed(_PAIR.pack(length, sequence)), _MARK_OFFSET)

    def _check_unchanged(self) -> None:
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise NotFound("upload: it was dropped; start over", field="upload_id")
        if status.st_size != self._length:
            raise OutOfSequence("upload: taken over by another stream; resume it", field="upload_id")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def sync(self) -> None:
        """Return once everything held is on disk. Raises NotFound, OutOfSequence as `append` does."""
        with self._locked():
            self._check_unchanged()
            sync_file(self._descriptor, self._name)

    def close(self) -> None:
        """Close the file; what is held stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class UploadedRun:
    """A `run_file.Source` on the spools of a finished upload: digests of one operation, in the order in which they were sent."""

    def __init__(self, spools: list[tuple[Path, int, bytes]], *, adds: bool) -> None:
        """spools: path, number of digests and their XXH3-128 of each part, as the ledger holds them."""
        self._spools = spools
        self._adds = adds
        self.sent = sum(count for _, count, _ in spools)

    def slice(self, low: int, high: int) -> Slice:
        """As `Source.slice`. Reads all of the spools, and so checks all of them."""
        parts: list[Digests] = []
        held = 0
        for path, count, checksum in self._spools:
            for digests in read_spool(path, count, checksum):
                part = digests[digests - np.uint64(low) <= np.uint64(high - low)]
                parts.append(part)
                held += len(part)
                if held > 2 * LIMIT:
                    found, high = shorten(_distinct(parts), high)
                    parts, held = [found.copy()], len(found)
        found, high = shorten(_distinct(parts), high)
        nothing = found[:0]
        return Slice(found, nothing, high) if self._adds else Slice(nothing, found, high)

    def loaded(self) -> MemorySource:
        """The same in memory, for an upload of at most `LIMIT` digests."""
        found = self.slice(0, (1 << 64) - 1)
        return MemorySource(found.added, found.removed, self.sent)


def _distinct(parts: list[Digests]) -> Digests:
    """All parts as one sorted array without repeats; empties the list, so that both are in memory for a moment only."""
    joined = np.concatenate((*parts, np.empty(0, dtype=np.uint64)))
    parts.clear()
    return distinct(joined)


def read_spool(path: Path, count: int, checksum: bytes) -> Iterator[Digests]:
    """The digests of a finished upload's spool, in pieces. Raises StateCorrupted unless they are the ``count`` digests whose
    XXH3-128 is ``checksum``; what was given until then must not be used."""
    name = relative_name(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise damaged_run(name, "missing or unreadable") from error
    whole = xxhash.xxh3_128()
    try:
        offset, sequence, rest = FIRST_FRAME, 1, count
        while rest > 0:
            pieces: list[bytes] = []
            held = 0
            while rest > held < _READ_DIGESTS:
                payload = _read_frame(descriptor, offset, sequence, checked=False)
                if payload is None:
                    raise damaged_run(name, f"batch {sequence} is not as sent")
                pieces.append(payload)
                held += len(payload) // _DIGEST_BYTES
                offset, sequence = offset + _FRAME_HEAD + len(payload), sequence + 1
            data = b"".join(pieces)
            whole.update(data)
            rest -= held
            yield np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
        if rest or whole.digest() != checksum:
            raise damaged_run(name, "its digests are not those that were sent")
    finally:
        os.close(descriptor)


def least_bytes(count: int) -> int:
    """Length of a spool of ``count`` digests in one batch; in more batches it is longer."""
    return FIRST_FRAME + (_FRAME_HEAD + _DIGEST_BYTES * count if count else 0)


def remove_spool(path: Path, only_if: tuple[int, int] | None = None) -> bool:
    """Delete a spool, or only one of this length and time of change (`trace`); whether it is gone.

    Under the lock that appends take, so that a batch is either refused or was held before the file went.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        status = os.fstat(descriptor)
        if only_if not in (None, (status.st_size, status.st_mtime_ns)):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def trace(path: Path) -> tuple[int, int] | None:
    """What changes whenever a spool is opened or appended to: its length and time of change in ns; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _head(set_id: int, serial: int) -> bytes:
    return _sealed(_HEAD.pack(_MAGIC, set_id, serial))


def _sealed(plain: bytes) -> bytes:
    return plain + _HASH.pack(xxhash.xxh3_64_intdigest(plain))


def _frame_hash(head: bytes, payload: bytes) -> bytes:
    hasher = xxhash.xxh3_64(head)
    hasher.update(payload)
    return _HASH.pack(hasher.intdigest())


def _read_frame(descriptor: int, offset: int, sequence: int, *, checked: bool = True) -> bytes | None:
    """The digests of the frame at ``offset``, or None if there is no whole frame of that sequence."""
    head = os.pread(descriptor, _FRAME_HEAD, offset)
    if len(head) != _FRAME_HEAD:
        return None
    found, count = _PAIR.unpack(head[: _PAIR.size])
    if found != sequence or not 1 <= count <= MAX_BATCH:
        return None
    payload = os.pread(descriptor, _DIGEST_BYTES * count, offset + _FRAME_HEAD)
    if len(payload) != _DIGEST_BYTES * count:
        return None
    if checked and _frame_hash(head[: _PAIR.size], payload) != head[_PAIR.size :]:
        return None
    return payload
