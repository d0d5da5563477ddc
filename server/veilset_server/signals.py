"""What the process is told from outside: SIGTERM and SIGINT to stop, SIGHUP to read certificates, keys and the like anew.

`starting` comes first and lasts to the end; inside it `Signals` take over with `begin_serving`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import structlog

STOPPING = (signal.SIGTERM, signal.SIGINT)
LAST_WORDS_SECONDS = 10.0
"""How long a start that is told to stop may take to let go."""

log = structlog.get_logger(__name__)


@contextmanager
def starting() -> Iterator[None]:
    """The block in which a process becomes a service. Until it serves, SIGTERM and SIGINT end it with 0 wherever it is: a start
    may take minutes, and whatever it is cut in the next one carries on, as after a kill. SIGHUP is ignored at first, as what it
    asks for is about to be read.
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
    """What a service is told while it runs: to stop, or to read anew.

    reloads: what SIGHUP calls, each in turn, in the thread that waits in `until_stopped`; one that raises is logged and keeps
    what it had.
    """

    def __init__(self) -> None:
        self.reloads: list[Callable[[], object]] = []
        self._told: SimpleQueue[bool] = SimpleQueue()  # may be put to from a signal's handler

    def listen(self) -> None:
        """SIGHUP has `reloads` called, as soon as somebody is in `until_stopped`."""
        _handle(signal.SIGHUP, lambda *_: self._told.put(False))

    def begin_serving(self) -> None:
        """From now on SIGTERM and SIGINT stop the service in order."""
        for number in STOPPING:
            _handle(number, lambda *_: self.stop())

    def stop(self) -> None:
        """End `until_stopped`."""
        self._told.put(True)

    def until_stopped(self) -> None:
        """Wait until told to stop."""
        while not self._told.get():
            self._reload()

    def _reload(self) -> None:
        log.info("reading certificates and keys anew")
        for reload in self.reloads:
            try:
                reload()
            except Exception as error:  # noqa: BLE001 - the service goes on with what it has
                log.error("not read anew, the old stays", kind=type(error).__name__)  # noqa: TRY400 - by its name, not its trace


def _handle(number: signal.Signals, handler: Callable[..., object]) -> None:
    if threading.current_thread() is threading.main_thread():  # a service within another program is told by that alone
        signal.signal(number, handler)


def end_in_time(seconds: float) -> threading.Timer:
    """End the process with 0 after ``seconds``, in case it has not ended by itself: a thread may wait for a Redis that hangs.

    Nothing is lost by it: what was acknowledged is on disk, and what is not finished the next start carries on, as after a kill.
    To be cancelled by whoever comes to the end before.
    """

    def end() -> None:
        log.warning("stopped while a thread was still at work; the next start carries on")
        sys.stderr.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer
