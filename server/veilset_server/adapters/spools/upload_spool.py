"""One open upload's digests in a file of its own (`spools.format`)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.core.params import DIGEST_BYTES
from veilset.errors import NotFound, OutOfSequence
from veilset_server.adapters.durability import new_file, relative_name, storage_errors, sync_file, write_all
from veilset_server.adapters.spools.format import (
    FIRST_FRAME,
    FRAME_HEAD_BYTES,
    MARK_OFFSET,
    MAX_DIGESTS,
    Mark,
    pack_frame_head,
    pack_head,
    pack_mark,
)
from veilset_server.adapters.spools.scan import frames, read_mark, scan


class SpoolFile:
    """UploadSpool port. Not to be shared between threads.

    If two are open on one file (a producer came back while its old stream still hung), the first to append goes on and the
    other is told OutOfSequence: each append checks, under a lock on the file, that it is as this one left it.
    """

    def __init__(self, path: Path, set_id: int, upload_hash: bytes) -> None:
        """Open the spool, make it if new, cut off what a crash tore. Raises StorageFull, StateCorrupted."""
        self._name = relative_name(path)
        if not path.exists():
            with new_file(path) as descriptor:
                write_all(descriptor, pack_head(set_id, upload_hash) + pack_mark(Mark(FIRST_FRAME, 0)))
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            with self._locked(), storage_errors(self._name):
                mark = read_mark(self._descriptor, self._name, set_id, upload_hash)
                self._content = scan(self._descriptor, self._name, mark)
                os.ftruncate(self._descriptor, self._content.length)
                self._write_mark(self._content.length, self._content.sequence)
                os.utime(self._descriptor)  # a resumed upload is not abandoned
        except BaseException:
            self.close()
            raise

    @property
    def sequence(self) -> int:
        """Highest batch held; 0 for none."""
        return self._content.sequence

    @property
    def elements(self) -> int:
        """Elements in those batches."""
        return self._content.elements

    def append(self, sequence: int, digests: NDArray[np.uint64]) -> None:
        """Hold the next batch, shape (n, 2).

        Raises OutOfSequence (not sequence + 1, or another stream went on), NotFound (the upload was dropped), StorageFull
        (nothing held).
        """
        if sequence != self.sequence + 1:
            raise OutOfSequence(f"batch {sequence}: the next one is {self.sequence + 1}", field="sequence")
        if digests.ndim != 2 or digests.shape[1] != 2 or len(digests) > MAX_DIGESTS:
            raise ValueError(f"digests: shape {digests.shape}, has to be (n, 2) with n up to {MAX_DIGESTS}")
        payload = np.ascontiguousarray(digests, dtype="<u8").reshape(-1).view(np.uint8).data
        head = pack_frame_head(sequence, len(digests), payload)
        length = self._content.length + FRAME_HEAD_BYTES + len(payload)
        with self._locked():
            self._check_unchanged()
            try:
                with storage_errors(self._name):
                    self._write_frame(head, payload)
                    self._write_mark(length, sequence)
            except BaseException:
                with suppress(
                    OSError
                ):  # what stays behind is above the mark; the next one to open the spool cuts it off
                    self._write_mark(self._content.length, self._content.sequence)
                    os.ftruncate(self._descriptor, self._content.length)
                raise
        self._content.length = length
        self._content.sequence = sequence
        self._content.elements += len(digests)
        self._content.sha256.update(payload)

    def _write_frame(self, head: bytes, payload: memoryview) -> None:
        """In one write; one that stops early (full disk, quota) is tried on, so as to learn why."""
        offset = self._content.length
        written = os.pwritev(self._descriptor, [head, payload], offset)
        rest = memoryview(head + bytes(payload))[written:] if written < len(head) + len(payload) else memoryview(b"")
        while rest:
            offset += written
            written = os.pwrite(self._descriptor, rest, offset)
            rest = rest[written:]

    def _write_mark(self, length: int, sequence: int) -> None:
        os.pwrite(self._descriptor, pack_mark(Mark(length, sequence)), MARK_OFFSET)

    def _check_unchanged(self) -> None:
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise NotFound("upload: it was dropped; start over", field="upload_id")
        if status.st_size != self._content.length:
            raise OutOfSequence("upload: taken over by another stream; resume it", field="upload_id")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def sha256(self) -> bytes:
        """SHA-256 of all digests held, in order."""
        return self._content.sha256.digest()

    def sync(self) -> None:
        """Return once everything held is on disk. Raises NotFound, OutOfSequence as `append` does."""
        with self._locked():
            self._check_unchanged()
            sync_file(self._descriptor, self._name)

    def read(self) -> Iterator[NDArray[np.uint64]]:
        """The digests again, a batch at a time, shape (n, 2). Raises StateCorrupted."""
        for payload in frames(self._descriptor, self._name, self._content.length):
            yield np.frombuffer(payload, dtype="<u8").reshape(-1, DIGEST_BYTES // 8)

    def close(self) -> None:
        """Let go of the file; what is held stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
