"""Answers about releases: waiting until a charged release is in Redis, and pages of lists."""

from __future__ import annotations

import threading
import time

from veilset.core.params import check_integer
from veilset.errors import StorageFull, StoreMisconfigured, Unavailable, must_be
from veilset_server.locks import KeyedLocks
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.allowances import FairSlots
from veilset_server.rpc.call import Call
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.delivery import Delivery, DeliveryWorker


class PendingReleases:
    """Delivers releases for callers who wait. ``shares``: who attempts a delivery holds a place."""

    def __init__(self, ledger: SqliteLedger, delivery: Delivery, worker: DeliveryWorker, shares: FairSlots) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._worker = worker
        self._shares = shares
        self._turns = KeyedLocks()

    def deliver(self, release: StoredRelease, seconds: float, call: Call) -> StoredRelease:
        """The release once readers can see it; still pending if Redis did not accept it in time or needs an operator."""
        if release.state is not ReleaseState.PENDING:
            return release
        until = time.monotonic() + seconds
        try:
            with self._turns.within(release.set_name, seconds):
                self._deliver(release, call)
        except StoreMisconfigured:  # charged all the same, but waiting is no use: an operator has to act first
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


MAX_PAGE = 1000
DEFAULT_PAGE = 100
MAX_SEQUENCE = 1 << 62
MOST_BYTES = 3 << 20
"""Of manifests in one answer, unless the first one alone has more: gRPC clients take 4 MiB if nothing else is said."""

_AT_A_TIME = 8


def page_size(asked: int) -> int:
    """0 is the default. Raises InvalidInput."""
    return check_integer("page_size", asked or DEFAULT_PAGE, 1, MAX_PAGE)


def sequence_token(token: str) -> int:
    """The sequence below which the page starts; 0 from the newest. Raises InvalidInput."""
    if token and not (token.isascii() and token.isdigit() and len(token) <= len(str(MAX_SEQUENCE))):
        raise must_be("page_token", "the next_page_token of the page before, or empty")
    return min(int(token or 0), MAX_SEQUENCE)


def release_page(
    ledger: SqliteLedger, set_name: str, below: int, size: int, most_bytes: int = MOST_BYTES
) -> tuple[list[StoredRelease], str]:
    """Up to ``size`` releases, newest first, and the token of the next page, empty behind the last.

    A manifest has 34 bytes for each MiB of its vector, so fewer fit where vectors are long.
    """
    found: list[StoredRelease] = []
    total = 0
    while more := ledger.list_releases(set_name, below, _AT_A_TIME):
        for release in more:
            total += len(release.manifest)
            if len(found) == size or (found and total > most_bytes):
                return found, str(found[-1].sequence)
            found.append(release)
        below = found[-1].sequence
    return found, ""
