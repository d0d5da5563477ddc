"""A little space kept aside on the state folder's disk, for what gives back more: deleting a set on a disk that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veilset_server.state.durability import FILE_MODE

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
