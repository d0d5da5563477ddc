"""What the log says of errors: where one came from, not its text, which can hold elements; and no flood of lines."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

PLACES = 6


def error_places(error: BaseException | None) -> list[str]:
    """Where in the code an error came through, innermost last: file and line, no values."""
    trace: TracebackType | None = error.__traceback__ if error is not None else None
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(trace)[-PLACES:]]


class LineLimit:
    """At most ``most`` lines a second. Thread-safe. left_out: called with the number of the others, once the second is over."""

    def __init__(self, most: int, left_out: Callable[[int], object]) -> None:
        self._most = most
        self._left_out = left_out
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0

    def take(self) -> bool:
        """Whether one more may be written now."""
        second, before = int(time.monotonic()), 0
        with self._lock:
            if second != self._second:
                before = max(0, self._lines - self._most)
                self._second, self._lines = second, 0
            self._lines += 1
            may = self._lines <= self._most
        if before:
            self._left_out(before)
        return may
