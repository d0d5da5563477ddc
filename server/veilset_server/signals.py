"""What the process is told from outside: SIGTERM and SIGINT to stop, SIGHUP to read certificates, keys and the like anew.

`starting` comes first and lasts to the end; inside it the loop makes `Signals`, and takes over with `begin_serving`.
"""

from __future__ import annotations

import asyncio
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
    """SIGHUP, and from `begin_serving` on SIGTERM and SIGINT, as events of the running loop.

    reloads: what SIGHUP calls, each in turn, in the event loop's thread; one that raises is logged and keeps what it had.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reloads: list[Callable[[], object]] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def begin_serving(self) -> None:
        """From now on SIGTERM and SIGINT set ``stopping``, as the loop is there to see it."""
        for number in STOPPING:
            self._loop.add_signal_handler(number, self.stopping.set)

    def _reload(self) -> None:
        log.info("reading certificates and keys anew")
        for reload in self.reloads:
            try:
                reload()
            except Exception as error:  # noqa: BLE001 - the service goes on with what it has
                log.error("not read anew, the old stays", kind=type(error).__name__)  # noqa: TRY400 - by its name, not its trace


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
