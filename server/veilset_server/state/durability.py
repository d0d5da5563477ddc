"""Making files durable. Every fsync of the service's own files happens here, and a failed one ends the process.

After a failed fsync the kernel may have marked the dirty pages clean and dropped them: a second fsync would then report
success for data that never reached the disk, and reading them back proves nothing as the answer comes from memory. So
neither carrying on nor trying again can be right. The process ends at once, without handlers that might write more; a
restart reads what the disk really holds and continues from there.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from veilset.errors import LimitExceeded, StateCorrupted, StorageFull

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
    promises nothing, and whatever fails meanwhile is told by the next fsync."""
    with suppress(OSError):  # pages that are still to be written are written, not dropped
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Return once the names in ``folder`` are on disk: creations, renames, removals."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor, f"folder {folder.name}")
    finally:
        os.close(descriptor)


def sync_mapping(mapping: mmap.mmap, name: str) -> None:
    """Return once all pages of a shared mapping are on disk."""
    try:
        mapping.flush()
    except OSError as error:
        end_process(f"msync of {name}", error)


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


def relative_name(path: Path) -> str:
    """The file's name with its folder's, as messages tell it: enough to find it, without the server's own path."""
    return f"{path.parent.name}/{path.name}"
