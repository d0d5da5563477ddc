"""The thread behind the service that brings charged releases to readers and keeps them there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from veilset.errors import StoreMisconfigured, VeilsetError
from veilset_server.error_places import error_places
from veilset_server.usecases.delivery import Delivery

SHORTEST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
LOOK_SECONDS = 1.0
"""How often to look whether a store that is our own process has ended."""

log = structlog.get_logger(__name__)


class DeliveryWorker:
    """A thread that delivers pending releases with capped back-off; reconciles and keeps house once a period.

    revive: for a store that is the service's own process: starts it again if it has ended, and tells whether it had; then
    all is restored at once. May not raise.
    """

    def __init__(
        self,
        delivery: Delivery,
        reconcile_seconds: float,
        housekeeping: Callable[[], object],
        revive: Callable[[], bool] | None = None,
    ) -> None:
        self._delivery = delivery
        self._housekeeping = housekeeping
        self._revive = revive
        self._longest_idle = float("inf") if revive is None else LOOK_SECONDS
        self._reconcile_seconds = reconcile_seconds
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; what is pending stays pending."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        pause = SHORTEST_PAUSE
        next_reconcile = 0.0
        while not self._stop.is_set():
            try:
                if self._revive is not None and not self._delivery.stopping and self._revive():
                    next_reconcile = 0.0
                due = time.monotonic() >= next_reconcile
                with ExitStack() as always:  # each is tried, whatever keeps the one before; what failed last is told
                    if due:
                        always.callback(self._housekeeping)
                        always.callback(self._delivery.reconcile)  # comes before the one above
                    self._delivery.deliver_pending()
                if due:
                    next_reconcile = time.monotonic() + self._reconcile_seconds
                pause = SHORTEST_PAUSE
                idle = min(max(0.0, next_reconcile - time.monotonic()), self._longest_idle)
            except VeilsetError as error:
                lasting = isinstance(error, StoreMisconfigured)  # somebody has to change a setting
                level = log.error if lasting else log.warning
                level("delivery delayed", reason=error.reason, kind=error.details.get("kind", ""), cause=error.message)
                idle = LONGEST_PAUSE if lasting else pause
                pause = min(2 * pause, LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - the thread must outlive what no one foresaw
                kind, places = type(error).__name__, error_places(error)
                log.error("delivery failed", kind=kind, places=places)  # noqa: TRY400 - its text may hold elements
                idle = pause
                pause = min(2 * pause, LONGEST_PAUSE)
            self._wake.wait(idle)
            self._wake.clear()
