"""An upload's file of frames (`spools.format`): opened, appended to, synced; whatever the frames hold."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from veilset.errors import NotFound, OutOfSequence
from veilset_server.state.durability import (
    new_file,
    relative_name,
    start_writing,
    storage_errors,
    sync_file,
    write_all,
)
from veilset_server.state.spools.format import (
    FIRST_FRAME,
    FRAME_HEAD_BYTES,
    MARK_OFFSET,
    MAX_UNITS,
    UNIT_BYTES,
    Mark,
    pack_frame_head,
    pack_head,
    pack_mark,
)
from veilset_server.state.spools.scan import SpoolContent, frames, read_mark, scan

Content = TypeVar("Content", bound=SpoolContent)


class FrameFile(Generic[Content]):
    """The part that all spools share. Not to be shared between threads.

    If two are open on one file (a producer came back while its old stream still hung), the first to append goes on and the
    other is told OutOfSequence: each append checks, under a lock on the file, that it is as this one left it.
    """

    def __init__(self, path: Path, set_id: int, upload_hash: bytes, magic: bytes, content: Content) -> None:
        """Open the spool, make it if new, cut off what a crash tore. Raises StorageFull, StateCorrupted.

        magic: of this kind of spool; one of another kind is refused. content: empty; it is told every frame.
        """
        self._name = relative_name(path)
        self._content = content
        if not path.exists():
            with new_file(path) as descriptor:
                write_all(descriptor, pack_head(magic, set_id, upload_hash) + pack_mark(Mark(FIRST_FRAME, 0)))
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            with self._locked(), storage_errors(self._name):
                mark = read_mark(self._descriptor, self._name, pack_head(magic, set_id, upload_hash))
                scan(self._descriptor, self._name, mark, content)
                os.ftruncate(self._descriptor, content.length)
                self._write_mark(content.length, content.sequence)
                os.utime(self._descriptor)  # a resumed upload is not abandoned
        except BaseException:
            self.close()
            raise

    def _hold(self, payload: memoryview) -> None:
        """Append the next frame.

        Raises OutOfSequence (another stream went on), NotFound (the upload was dropped), StorageFull (nothing held).
        """
        units, rest = divmod(len(payload), UNIT_BYTES)
        if rest or units > MAX_UNITS:
            raise ValueError(f"payload: {len(payload)} bytes, has to be up to {MAX_UNITS} times {UNIT_BYTES}")
        sequence = self._content.sequence + 1
        head = pack_frame_head(sequence, units, payload)
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
        start_writing(self._descriptor, self._content.length, length - self._content.length)
        self._content.take(payload)

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

    def sync(self) -> None:
        """Return once everything held is on disk. Raises NotFound, OutOfSequence as appending does."""
        with self._locked():
            self._check_unchanged()
            sync_file(self._descriptor, self._name)

    def _payloads(self) -> Iterator[bytes]:
        """All frames again, in order. Raises StateCorrupted."""
        return frames(self._descriptor, self._name, self._content.length)

    def close(self) -> None:
        """Let go of the file; what is held stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
