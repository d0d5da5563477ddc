"""A charged release on its way to readers, and a caller who waits for it, without a place among those at work: Redis may refuse
for minutes, and repeats of one request must not keep all others out."""

from __future__ import annotations

import threading
import time

from veilset.errors import StorageFull, StoreMisconfigured, Unavailable
from veilset_server.locks import KeyedLocks
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.call import Call
from veilset_server.rpc.shares import Shares
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.delivery_worker import DeliveryWorker


class PendingReleases:
    """Delivers releases for callers who wait. ``shares``: who attempts a delivery holds a place."""

    def __init__(self, ledger: SqliteLedger, delivery: Delivery, worker: DeliveryWorker, shares: Shares) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._worker = worker
        self._shares = shares
        self._turns = KeyedLocks()

    def deliver(self, release: StoredRelease, seconds: float, call: Call) -> StoredRelease:
        """The release as readers see it, or as it is once Redis did not take it for so long, or needs somebody to act."""
        if release.state is not ReleaseState.PENDING:
            return release
        until = time.monotonic() + seconds
        try:
            with self._turns.within(release.set_name, seconds):
                self._deliver(release, call)
        except StoreMisconfigured:  # charged all the same, but nothing to wait for: somebody has to act first
            self._worker.wake()
            return self._look(release)
        except (Unavailable, StorageFull, TimeoutError):  # it is charged: whatever delays it, the answer is the release
            self._worker.wake()
        return self._wait(release, until, call)

    def _deliver(self, release: StoredRelease, call: Call) -> None:
        """A delivery that has begun is waited for, whatever the caller's time."""
        if self._look(release).state is ReleaseState.PENDING and not self._delivery.stopping:  # another's turn did it
            with self._shares.place(call.key):
                self._delivery.deliver_pending(release.set_name)

    def _wait(self, release: StoredRelease, until: float, call: Call) -> StoredRelease:
        moved = threading.Event()
        call.context.add_callback(moved.set)  # its end wakes us too
        with self._delivery.listening(release.set_name, moved.set):
            while True:
                moved.clear()
                current = self._look(release)
                left = until - time.monotonic()
                if current.state is not ReleaseState.PENDING or self._delivery.stopping or left <= 0 or call.is_over:
                    return current
                moved.wait(left)

    def _look(self, release: StoredRelease) -> StoredRelease:
        return self._ledger.get_release(release.set_name, release.sequence)
