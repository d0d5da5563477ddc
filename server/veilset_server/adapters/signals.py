"""What the process is told from outside: SIGTERM and SIGINT to stop, SIGHUP to read certificates, keys and the like anew."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Signals:
    """Takes over the signals of the running event loop.

    reloads: what SIGHUP calls, each in turn, in the event loop's thread; one that raises is logged and keeps what it had.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reloads: list[Callable[[], object]] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

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
