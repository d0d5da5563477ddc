"""What the rooms of the client need of the operating system: forked processes, uneven pauses, small files, times as text."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

from veilset.errors import FailedPrecondition

SMALL_FILE_LIMIT = 1 << 20
"""Longest file that a user may name for a token, a secret, a URL or certificates, in bytes."""


class OneProcess:
    """Remembers the process that made it: in a child threads are missing, and sockets are shared with the parent."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: str, remedy: str) -> None:
        """Raise FailedPrecondition in a process that was forked since. what, remedy: parts of its sentence."""
        if os.getpid() != self._pid:
            raise FailedPrecondition(f"{what} before this process was forked, and works in its parent only; {remedy}")


def jitter(least: float, most: float) -> float:
    """A random factor in [least, most], so that clients which lost a service together return one by one."""
    return least + (most - least) * int.from_bytes(os.urandom(4)) / 0xFFFFFFFF


def read_small(path: str | os.PathLike[str]) -> bytes:
    """All of a file of at most 1 MiB, or a pipe's content. Raises OSError, for what is longer too."""
    with Path(path).open("rb") as file:
        content = file.read(SMALL_FILE_LIMIT + 1)
    if len(content) > SMALL_FILE_LIMIT:
        raise OSError(errno.EFBIG, f"longer than {SMALL_FILE_LIMIT >> 20} MiB", str(path))
    return content


def iso_time(at_us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC, to the second; None for 0 and None, which mean unknown or never."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds") if at_us else None
