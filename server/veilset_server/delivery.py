"""From a charged release to readers: chunks, manifest, pointer, mark. All steps may be repeated; none costs budget.

Redis holds nothing that cannot be written again from the artefacts, so whatever it loses, reconcile restores.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import structlog

from veilset.core.redis_keys import MANIFEST
from veilset.core.release import CHUNK_BYTES, check_chunk, chunk_sizes
from veilset.core.signing import open_manifest
from veilset.errors import ReleaseRejected, StateCorrupted, VeilsetError
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Ledger, ReleaseStore, VectorStore
from veilset_server.records import ReleaseState, StoredRelease

SHORTEST_PAUSE = 0.2
LONGEST_PAUSE = 5.0

log = structlog.get_logger(__name__)


class Delivery:
    """Brings charged releases to the release store, in order, and keeps them there.

    keep: how many of a set's newest releases stay; older ones go after grace_seconds.
    """

    def __init__(
        self, ledger: Ledger, files: VectorStore, store: ReleaseStore, keep: int = 2, grace_seconds: int = 600
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._store = store
        self._keep = keep
        self._grace_seconds = grace_seconds
        self.locks = KeyedLocks()
        self._moved = threading.Condition()

    def deliver_pending(self, set_name: str | None = None) -> int:
        """Deliver what is charged but not visible, oldest first; returns how many. Raises Unavailable at the first
        that the store does not take; it stays pending."""
        delivered = 0
        for release in self._ledger.releases_in_state(ReleaseState.PENDING):
            if set_name in (None, release.set_name):
                delivered += self._deliver(release)
        return delivered

    def _deliver(self, release: StoredRelease) -> bool:
        with self.locks[release.set_name]:
            current = self._ledger.get_release(release.set_name, release.sequence)
            if current.state is not ReleaseState.PENDING:
                return False
            try:
                self._store.upload(release.set_name, release.sequence, release.manifest, self._chunks(release))
            except (StateCorrupted, ReleaseRejected):
                self._mark(release, ReleaseState.LOST)  # charged and never visible: it stays charged
                return False
            self._store.move_pointer(release.set_name, release.sequence)
            self._mark(release, ReleaseState.PUBLISHED)
            self._retire(release.set_name)
            return True

    def _chunks(self, release: StoredRelease) -> Iterator[bytes]:
        header = open_manifest(release.manifest)
        for index, chunk in enumerate(self._files.read_artefact(release.set_id, release.sequence, CHUNK_BYTES)):
            yield check_chunk(header, index, chunk)

    def _mark(self, release: StoredRelease, state: ReleaseState) -> None:
        self._ledger.mark_release(release.set_id, release.sequence, state)
        with self._moved:
            self._moved.notify_all()

    def _retire(self, set_name: str) -> None:
        """Let all but the newest releases go, after a grace in which a reader in mid-download finishes."""
        published = [
            release
            for release in self._ledger.list_releases(set_name, 0, 1000)
            if release.state is ReleaseState.PUBLISHED
        ]
        for release in published[self._keep :]:
            sizes = chunk_sizes(open_manifest(release.manifest).vector_bytes)
            self._store.expire(set_name, release.sequence, len(sizes), self._grace_seconds)
            self._mark(release, ReleaseState.EXPIRED)
            self._files.remove_artefact(release.set_id, release.sequence)

    def wait(self, set_name: str, sequence: int, seconds: float) -> StoredRelease:
        """The release once it is no longer pending, or as it is after ``seconds``."""
        with self._moved:
            self._moved.wait_for(
                lambda: self._ledger.get_release(set_name, sequence).state is not ReleaseState.PENDING, seconds
            )
        return self._ledger.get_release(set_name, sequence)

    def reconcile(self, set_name: str | None = None) -> tuple[int, int]:
        """Write again what the store lost of the published releases; returns (releases checked, keys restored).

        Raises Unavailable.
        """
        checked = restored = 0
        self._store.ping()  # an outage is noticed, and logged by the worker, before anybody publishes
        self._retire_overdue(set_name)
        for release in self._ledger.releases_in_state(ReleaseState.PUBLISHED):
            if set_name in (None, release.set_name):
                checked += 1
                try:
                    with self.locks[release.set_name]:
                        restored += self._restore(release)
                except VeilsetError as error:  # the others still can be restored
                    reason = error.details.get("kind", error.reason)
                    log.warning("cannot restore", set=release.set_name, sequence=release.sequence, reason=reason)
        return checked, restored

    def _retire_overdue(self, set_name: str | None) -> None:
        """Retire what a crash left between a release's mark and the retirement of its predecessors."""
        counts = Counter(release.set_name for release in self._ledger.releases_in_state(ReleaseState.PUBLISHED))
        for name in [name for name, count in counts.items() if count > self._keep and set_name in (None, name)]:
            with self.locks[name]:
                self._retire(name)

    def _restore(self, release: StoredRelease) -> int:
        """Keys and pointer of one release; the caller holds its set's lock. Returns how many were restored."""
        current = self._ledger.get_release(release.set_name, release.sequence)
        if current.state is not ReleaseState.PUBLISHED:
            return 0  # deleted or retired meanwhile
        restored = self._restore_keys(release)
        if self._store.latest(release.set_name) < release.sequence:
            self._store.move_pointer(release.set_name, release.sequence)
            restored += 1
        return restored

    def _restore_keys(self, release: StoredRelease) -> int:
        sizes = chunk_sizes(open_manifest(release.manifest).vector_bytes)
        missing = set(self._store.missing_chunks(release.set_name, release.sequence, release.manifest, sizes))
        if not missing:
            return 0
        try:
            return self._write_again(release, missing)
        except (StateCorrupted, ReleaseRejected) as error:
            log.error(  # noqa: TRY400 - by reason, not by text
                "cannot restore", set=release.set_name, sequence=release.sequence, reason=error.reason
            )
            return 0  # the other releases still can be

    def _write_again(self, release: StoredRelease, missing: set[int]) -> int:
        for index, chunk in enumerate(self._chunks(release)):
            if index in missing:
                self._store.restore(release.set_name, release.sequence, index, chunk)
        if MANIFEST in missing:
            self._store.restore(release.set_name, release.sequence, MANIFEST, release.manifest)
        return len(missing)

    def forget(self, set_name: str, releases: Sequence[StoredRelease]) -> None:
        """Remove a set's pointer and releases from the store; the caller holds ``locks[set_name]``. Raises Unavailable."""
        counts = [(release.sequence, len(open_manifest(release.manifest).chunk_sha256)) for release in releases]
        self._store.remove(set_name, counts)


class DeliveryWorker:
    """A thread that delivers pending releases with capped back-off; reconciles and keeps house once a period."""

    def __init__(self, delivery: Delivery, reconcile_seconds: float, housekeeping: Callable[[], object]) -> None:
        self._delivery = delivery
        self._housekeeping = housekeeping
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
                self._delivery.deliver_pending()
                if time.monotonic() >= next_reconcile:
                    self._housekeeping()
                    self._delivery.reconcile()
                    next_reconcile = time.monotonic() + self._reconcile_seconds
                pause = SHORTEST_PAUSE
                idle = max(0.0, next_reconcile - time.monotonic())
            except VeilsetError as error:
                log.warning("delivery delayed", reason=error.reason, kind=error.details.get("kind", ""))
                idle = pause
                pause = min(2 * pause, LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - the thread must outlive what nobody foresaw
                log.error("delivery failed", kind=type(error).__name__)  # noqa: TRY400 - its text may hold elements
                idle = pause
                pause = min(2 * pause, LONGEST_PAUSE)
            self._wake.wait(idle)
            self._wake.clear()
