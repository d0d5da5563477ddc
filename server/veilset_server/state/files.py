"""Opening small files of which it is not known what they are, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from veilset_server.state.durability import FILE_MODE

MAX_BYTES = 1 << 28
"""Far more than any of them holds; whatever is longer is none of ours, and would cost its length in memory."""


class Held(Exception):
    """Another process has the lock. pid: its id in decimal, or "" if the file does not tell."""

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
