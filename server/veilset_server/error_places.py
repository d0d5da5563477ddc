"""Where an error came from, for the log, which may not have the error's text: that can hold elements."""

from __future__ import annotations

import traceback
from types import TracebackType

PLACES = 6


def error_places(error: BaseException | None) -> list[str]:
    """Where in the code an error came through, innermost last: file and line, no values."""
    trace: TracebackType | None = error.__traceback__ if error is not None else None
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(trace)[-PLACES:]]
