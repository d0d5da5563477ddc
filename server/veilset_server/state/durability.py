"""Making files durable. Every fsync of the service's own files happens here, and a failed one ends the process.

After a failed fsync the kernel may have marked the dirty pages clean and dropped them: a second fsync would then report
success for data that never reached the disk, and reading them back proves nothing as the answer comes from memory. So
neither carrying on nor trying again can be right. The process ends at once, without handlers that might write more; a
restart reads what the disk really holds and continues from there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from veilset.errors import LimitExceeded, NotFound, StateCorrupted, StorageFull

FILE_MODE = 0o600
FOLDER_MODE = 0o700
TEMPORARY_SUFFIX = ".tmp"
_SHORT = {errno.EMFILE: "file descriptors", errno.ENFILE: "file descriptors", errno.ENOMEM: "memory"}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def end_process(what: str, error: BaseException) -> NoReturn:
    """Write one line to stderr and end the process with status EX_IOERR (74)."""
    line = f"veilset: fatal: {what} failed: {error}. What the disk holds is unknown; the process ends, restart it.\n"
    with suppress(OSError):
        os.write(2, line.encode(errors="replace"))
    os._exit(os.EX_IOERR)


def sync_file(descriptor: int, name: str) -> None:
    """Return once the open file's data and length are on disk; ``name`` is for the log line."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        end_process(f"fsync of {name}", error)


def start_writing(descriptor: int, offset: int, length: int) -> None:
    """Have the system begin to write that part of the file to disk, so that `sync_file` has less to wait for. A hint: it
    promises nothing, and a failure is reported by the next fsync."""
    with suppress(OSError):  # pages that are still to be written are written, not dropped
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` are on disk: creations, renames, removals."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor, f"folder {folder.name}")
    finally:
        os.close(descriptor)


def short_of(what: str) -> LimitExceeded:
    """A shortage of the process, which passes: nothing is damaged, and nothing was lost."""
    return LimitExceeded(f"service: it is out of {what} just now; try again", resource=what)


def check_descriptors(reserve: int) -> None:
    """Raises LimitExceeded unless so many descriptors are left: the system gives the lowest free one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with storage_errors("null"):
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
    if lowest > limit - reserve:
        raise short_of("file descriptors")


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """Turn a full disk or quota into StorageFull, an unreadable block into StateCorrupted, naming the file, and a shortage of
    the process into LimitExceeded."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"{name}: the disk of the state folder is full", file=name) from error
        if error.errno in _SHORT:
            raise short_of(_SHORT[error.errno]) from error
        if error.errno == errno.EIO:
            raise StateCorrupted(f"{name}: the disk cannot read or write it", file=name) from error
        raise


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """Write a file that appears under ``path`` whole and durable, or not at all; gives the open descriptor.

    Takes the place of an older file of that name. Raises StorageFull; nothing is left behind then.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with storage_errors(relative_name(path)):
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE)
            try:
                yield descriptor
                sync_file(descriptor, temporary.name)
            finally:
                os.close(descriptor)
            temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` at the descriptor's position; a write that stops early is carried on."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_file(path: Path, data: bytes, *, for_service: bool = False) -> None:
    """Put a small file in place, whole and durable, in one step. Raises StorageFull.

    for_service: if root writes the file it belongs to the owner of its folder, so that the service can read it.
    """
    with new_file(path) as descriptor:
        if for_service and os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        write_all(descriptor, data)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """The block in which no other process changes files of ``folder``. Raises NotFound if there is no such folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"state: there is no folder {folder}", field="state") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def json_with_checksum(content: dict[str, Any], indent: int | None = 1) -> bytes:
    """``content`` as JSON with a SHA-256 of itself: a changed digit would be valid JSON otherwise. indent: None for one line."""
    return json.dumps(content | {"sha256": json_checksum(content)}, indent=indent, sort_keys=True).encode()


def parse_json_with_checksum(text: bytes) -> dict[str, Any]:
    """What `json_with_checksum` made. Raises ValueError, KeyError, TypeError, AttributeError or RecursionError otherwise."""
    found: dict[str, Any] = json.loads(text)
    if found.pop("sha256") != json_checksum(found):
        raise ValueError("checksum")
    return found


def json_checksum(content: dict[str, Any]) -> str:
    """SHA-256 of the content in canonical form, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def relative_name(path: Path) -> str:
    """The file's name with its folder's, as messages show it: enough to find it, without the server's own path."""
    return f"{path.parent.name}/{path.name}"


MAX_BYTES = 1 << 28
"""Far more than any of them holds; whatever is longer is none of ours, and would cost its length in memory."""


class Held(Exception):
    """Another process has the lock. pid: its id in decimal, or "" if the file does not hold one."""

    def __init__(self, pid: str) -> None:
        super().__init__(f"process {pid}" if pid else "another process")
        self.pid = pid


def read_regular(path: Path) -> bytes:
    """All of a regular file of at most 256 MiB. Raises OSError at once for anything else, also for a pipe, whose reading
    would wait for a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, "longer than 256 MiB", str(path))
    return content


def hold(path: Path) -> int:
    """Take an exclusive lock on the file, which is made if needed, and write this process's id into it; returns the descriptor.

    The kernel lets the lock go when the descriptor is closed, or the process ends however it ends. Raises Held, and
    OSError where the file cannot be written or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise Held(holder if holder.isdigit() else "") from None
    except BaseException:
        os.close(descriptor)
        raise
    with suppress(OSError):  # the number only helps people; a full disk must not keep the service from starting
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor


RESERVE_NAME = "reserve"
RESERVE_BYTES = 256 << 10
"""Enough for the journal of a commit that deletes a set."""


class SpaceReserve:
    """A file of so many bytes, which are the disk's own (not a hole). Best effort: a disk that is full gets none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESERVE_NAME
        self._fill()

    @contextmanager
    def given(self) -> Iterator[None]:
        """The block in which the space is free; afterwards as much of it as there is is kept again."""
        with suppress(OSError):
            os.truncate(self._path, 0)
        try:
            yield
        finally:
            self._fill()

    def _fill(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # no half of it
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
