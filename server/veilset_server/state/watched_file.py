"""A file that others replace while the service runs: read again as soon as it is another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from veilset_server.state.durability import read_regular

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """The parsed content of a file. Thread-safe.

    parse: bytes → content; raises a VeilsetError for a damaged file. Costs one stat a question (a microsecond) unless the
    file changed, so that a revocation is in force with the next question.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Content]) -> None:
        self._path = path
        self._parse = parse
        self._seen: tuple[int, int, int, int] | None = None
        self._content: Content | None = None
        self._failure: Exception | None = None
        self._was_there = False
        self._lock = threading.Lock()

    @property
    def ever_there(self) -> bool:
        """Whether the file is there, or was at some time since this object was made."""
        self._was_there = self._was_there or self._path.exists()
        return self._was_there

    def read(self) -> Content:
        """The content now. Raises what ``parse`` raised, or OSError (missing, not readable), until the file is another one."""
        with self._lock:
            status = self._path.stat()
            self._was_there = True
            seen = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._content = self._failure = None
                try:
                    self._content = self._parse(read_regular(self._path))
                except Exception as failure:  # noqa: BLE001 - kept and raised at every question, whatever it is
                    self._failure = failure
                self._seen = seen
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # raised anew, it would grow a longer trace each time
            assert self._content is not None
            return self._content
