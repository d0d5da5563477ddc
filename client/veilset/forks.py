"""What a child process may not use that its parent opened before it forked: threads stay behind, and sockets are shared."""

from __future__ import annotations

import os

from veilset.errors import FailedPrecondition


class OneProcess:
    """Of the process that made it."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: str, remedy: str) -> None:
        """Raises FailedPrecondition in a process that was forked since."""
        if os.getpid() != self._pid:
            raise FailedPrecondition(f"{what} before this process was forked, and works in its parent only; {remedy}")
