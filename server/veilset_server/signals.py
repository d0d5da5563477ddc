"""Signals: SIGTERM and SIGINT stop the service, SIGHUP makes it read certificates, keys and tokens again.

`starting` comes first and lasts to the end; inside it `Signals` take over with `begin_serving`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

STOPPING = (signal.SIGTERM, signal.SIGINT)
LAST_WORDS_SECONDS = 10.0
"""How long an interrupted start may take to release what it holds."""

log = structlog.get_logger(__name__)


@contextmanager
def starting() -> Iterator[None]:
    """The block in which a process becomes a service. Until it serves, SIGTERM and SIGINT end it with exit code 0 at any point: a
    start may take minutes, and the next start continues where this one stopped, as after a kill. SIGHUP is ignored at first,
    since all files are about to be read anyway.
    """
    before = {number: signal.signal(number, _end) for number in STOPPING}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    except SystemExit:
        if structlog.is_configured():
            log.info("stopped while starting")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal.signal asks
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    end_in_time(LAST_WORDS_SECONDS)
    raise SystemExit(0)


class Signals:
    """SIGTERM and SIGINT stop a running service; SIGHUP has it read certificates, keys and the like again.

    A context manager. reloads: called one after the other for each SIGHUP, in the thread that waits in `until_stopped`; one
    that raises is logged, and what it had stays in force.

    Signals arrive as bytes in a pipe, which the interpreter's own handler writes at once. A Python handler would run only
    when the main thread next executes Python code: a signal that came just before that thread blocked was lost.
    """

    def __init__(self) -> None:
        self.reloads: list[Callable[[], object]] = []

    def __enter__(self) -> Signals:
        self._received, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, _leave_to_pipe)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)
        os.close(self._received)

    def begin_serving(self) -> None:
        """From now on SIGTERM and SIGINT end `until_stopped`, and no longer the start."""
        for number in STOPPING:
            signal.signal(number, _leave_to_pipe)

    def until_stopped(self) -> None:
        """Wait for SIGTERM or SIGINT; serve SIGHUP meanwhile."""
        while (number := os.read(self._received, 1)[0]) not in STOPPING:
            if number == signal.SIGHUP:
                self._reload()

    def _reload(self) -> None:
        log.info("reading certificates and keys again")
        for reload in self.reloads:
            try:
                reload()
            except Exception as error:  # noqa: BLE001 - the service goes on with what it has
                log.error("could not be read again, the old stays", kind=type(error).__name__)  # noqa: TRY400 - its text may tell what the file holds


def _leave_to_pipe(number: int, frame: FrameType | None) -> None:
    """Only a signal that has a Python handler is written to the pipe."""


def end_in_time(seconds: float) -> threading.Timer:
    """End the process with exit code 0 after ``seconds`` if it still runs: a thread may wait for a Redis that hangs.

    Nothing is lost: what was acknowledged is on disk, and the next start continues the rest, as after a kill. A caller that
    ends in time cancels the returned timer.
    """

    def end() -> None:
        log.warning("stopped while a thread was still at work; the next start continues its work")
        sys.stderr.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer
