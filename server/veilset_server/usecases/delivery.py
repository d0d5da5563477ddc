"""From a charged release to readers: chunks, manifest, pointer, state. All steps may be repeated; none costs budget.

Redis holds nothing that cannot be written again from the artefacts, so whatever it loses, reconcile restores. `DeliveryWorker`
is the thread that does both in the background.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import structlog

from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import NotFound, ReleaseRejected, StateCorrupted, StoreMisconfigured, Unavailable, VeilsetError
from veilset_server.locks import KeyedLocks
from veilset_server.ports import ReleaseStore
from veilset_server.process import error_places
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.restoring import ChunkRotation, Outage, Reconciled, Restoring, chunk_count, generation_of

CHUNKS_AT_A_TIME = 8
"""Of 1 MiB, that a periodic pass reads back and compares: what it costs does not grow with what is published."""

log = structlog.get_logger(__name__)

SHORTEST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
LEAST_REST = 4.0
"""So many times as long as a pass took, at least, until the next: of thousands of sets it takes seconds of the processor."""
LOOK_SECONDS = 1.0
"""How often to look whether a store that is our own process has ended."""


class Delivery:
    """Brings charged releases to the release store, in order, and keeps them there.

    keep: how many of a set's newest releases stay; older ones go after grace_seconds. on_lost: called when a
    charged release is given up, since its artefact is damaged.
    """

    def __init__(
        self,
        ledger: SqliteLedger,
        artefacts: ArtefactFiles,
        store: ReleaseStore,
        keep: int = 2,
        grace_seconds: int = 600,
        *,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._on_lost = on_lost
        self._artefacts = artefacts
        self._store = store
        self._keep = keep
        self._grace_seconds = grace_seconds
        self._restoring = Restoring(artefacts, store)
        self._rotation = ChunkRotation(CHUNKS_AT_A_TIME)
        self._damaged: set[tuple[str, int]] = set()
        self._eviction_policy = ""
        self.locks = KeyedLocks()
        self.stopping = False
        self._listeners: list[tuple[str, Callable[[], object]]] = []
        self._listening = threading.Lock()
        self.delays: dict[str, str] = {}
        """Why the last delivery of a set failed, in a sentence; only of sets where it did."""

    def deliver_pending(self, set_name: str | None = None) -> int:
        """Deliver what is charged but not visible, oldest first; returns how many. What the store does not take stays
        pending, and so do later ones of its set; Unavailable is raised behind the others."""
        delivered = 0
        outage = Outage()
        for release in self._ledger.releases_in_state(ReleaseState.PENDING):
            if set_name in (None, release.set_name) and release.set_name not in outage.sets:
                with outage.of(release.set_name), self._noting(release.set_name):
                    delivered += self._deliver(release)
        outage.raise_kept()
        return delivered

    @contextmanager
    def _noting(self, set_name: str) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            self.delays[set_name] = error.message
            raise
        self.delays.pop(set_name, None)

    def refuse_while_delayed(self, set_name: str) -> None:
        """Before a charge: deliver what is charged already. Raises Unavailable or StoreMisconfigured where that fails, since a
        further release of the set would stay behind as well."""
        waiting = [
            release for release in self._ledger.releases_in_state(ReleaseState.PENDING) if release.set_name == set_name
        ]
        if not waiting:
            return
        try:
            self.deliver_pending(set_name)
        except Unavailable as error:
            raise type(error)(
                f"set {set_name}: nothing was charged, since release {waiting[0].sequence} is charged and Redis does not take it "
                f"({error.message}); it is delivered once Redis does. To charge another all the same: --although-pending",
                kind=error.details.get("kind", ""),
                sequence=waiting[0].sequence,
            ) from None

    def _deliver(self, release: StoredRelease) -> bool:
        with self.locks[release.set_name]:
            current = self._ledger.get_release(release.set_name, release.sequence)
            if current.state is not ReleaseState.PENDING:
                return False
            name, sequence = release.set_name, release.sequence
            try:
                self._store.upload(name, sequence, release.manifest, self._restoring.chunks(release))
            except (StateCorrupted, ReleaseRejected) as error:  # charged and never visible: it stays charged
                with suppress(StoreMisconfigured):  # what was written of it may stay
                    self._store.expire(name, sequence, chunk_count(release), self._grace_seconds)
                self._mark(release, ReleaseState.LOST)
                self._on_lost()
                held = "waits for the next base release" if open_manifest(release.manifest).earlier else "charged"
                log.error("release lost", set=name, sequence=sequence, held=held, file=error.details.get("file", ""))  # noqa: TRY400
                return False
            self._store.move_pointer(name, sequence)
            with suppress(StoreMisconfigured):
                self._expire_lost_before(release)
            self._mark(release, ReleaseState.PUBLISHED)
            with suppress(StoreMisconfigured):  # the next pass says so
                self._retire(release.set_name)
            return True

    def _mark(self, release: StoredRelease, state: ReleaseState) -> None:
        self._ledger.mark_release(release.set_id, release.sequence, state)
        self._notify(release.set_name)

    def _retire(self, set_name: str) -> None:
        """Let all but the newest generations go, after a grace in which a reader in mid-download finishes."""
        releases = [
            self._ledger.get_release(set_name, sequence)
            for sequence in self._ledger.sequences_in_state(set_name, ReleaseState.PUBLISHED)
        ]
        kept = sorted({generation_of(release) for release in releases})[-self._keep :]
        for release in [release for release in releases if generation_of(release) not in kept]:
            self._store.expire(set_name, release.sequence, chunk_count(release), self._grace_seconds)
            self._mark(release, ReleaseState.EXPIRED)
            self._artefacts.remove(release.set_id, release.sequence)

    @contextmanager
    def listening(self, set_name: str, notify: Callable[[], object]) -> Iterator[None]:
        """The block in which ``notify`` is called, in any thread, when a release of the set changes its state or the service
        stops (then `stopping` is true). It must not wait."""
        listener = set_name, notify
        with self._listening:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._listening:
                self._listeners.remove(listener)

    def _notify(self, set_name: str | None = None) -> None:
        with self._listening:
            for listened_to, notify in self._listeners:
                if set_name in (None, listened_to):
                    notify()

    def stop_waiting(self) -> None:
        """The service stops: callers that wait are answered now."""
        self.stopping = True
        self._notify()

    @property
    def damaged(self) -> int:
        """How many published releases could not be restored, and no comparison of everything has found whole since."""
        return len(self._damaged)

    def reconcile(self, set_name: str | None = None, *, whole: bool = False) -> Reconciled:
        """Write again what the store lost or changed of the published releases.

        whole: compare every chunk's content; else lengths, manifests, and the content of a few chunks, of others each
        time. Newest first, so that the pointer never comes by an older release. Raises Unavailable.
        """
        checked = restored = 0
        outage = Outage()
        with outage.aside():
            self._store.ping()  # an outage is noticed, and logged by the worker, before a publish needs it
        with outage.aside():
            self._warn_of_eviction()
        self._retire_overdue(set_name, outage)
        published = self._ledger.releases_in_state(ReleaseState.PUBLISHED)
        releases = [release for release in reversed(published) if set_name in (None, release.set_name)]
        headers = [open_manifest(release.manifest) for release in releases]
        self._forget_damaged_but(set_name, {(release.set_name, release.sequence) for release in releases})
        unrestorable = []
        places = ((header.set_name, header.sequence, len(header.chunk_sha256)) for header in headers)
        chosen = set() if whole else self._rotation.next_chunks(places)
        for release, header in zip(releases, headers, strict=True):
            name, sequence = release.set_name, release.sequence
            chunks = range(len(header.chunk_sha256))
            compare = chunks if whole else [index for index in chunks if (name, sequence, index) in chosen]
            try:
                checked += 1
                with outage.of(name):
                    restored += self._restore(release, header, compare)
                    if whole:  # else it may not have been looked at where it is damaged
                        self._damaged.discard((name, sequence))
            except (StateCorrupted, NotFound) as error:  # the others still can be
                file = error.details.get("file", "")
                log.error("cannot restore", set=name, sequence=sequence, reason=error.reason, file=file)  # noqa: TRY400
                self._damaged.add((name, sequence))
                unrestorable.append((name, sequence))
        outage.raise_kept()
        return Reconciled(checked, restored, tuple(unrestorable))

    def _forget_damaged_but(self, set_name: str | None, published: Collection[tuple[str, int]]) -> None:
        """What is gone or retired since needs no restoring."""
        for place in tuple(self._damaged):  # another pass may be adding
            if set_name in (None, place[0]) and place not in published:
                self._damaged.discard(place)

    def _warn_of_eviction(self) -> None:
        policy, before = self._store.evicts(), self._eviction_policy
        if policy and policy != before:
            log.warning("Redis may evict releases; set its maxmemory-policy to noeviction", policy=policy)
        self._eviction_policy = policy

    def _retire_overdue(self, set_name: str | None, outage: Outage) -> None:
        """Retire what a crash left between a release's mark and the retirement of its predecessors."""
        published = self._ledger.releases_in_state(ReleaseState.PUBLISHED)
        counts = Counter(name for name, _ in {(release.set_name, generation_of(release)) for release in published})
        for name in [name for name, count in counts.items() if count > self._keep and set_name in (None, name)]:
            with outage.aside(), self.locks[name]:
                self._retire(name)

    def _restore(self, release: StoredRelease, header: ReleaseHeader, compare: Collection[int]) -> int:
        """Returns how many keys were restored; the pointer counts as one."""
        with self.locks[release.set_name]:
            current = self._ledger.get_release(release.set_name, release.sequence)
            if current.state is not ReleaseState.PUBLISHED:
                return 0  # deleted or retired meanwhile
            return self._restoring.restore(release, header, compare)

    def let_lost_go(self, set_name: str) -> None:
        """After a confirmed loss: let the releases expire that only the store still knew, but for the one that it points at.

        That one was charged and is signed; readers who have seen it would refuse whatever the pointer could be moved back
        to. It goes when the next release takes its place. Raises Unavailable.
        """
        with self.locks[set_name]:
            newest = next(iter(self._ledger.list_releases(set_name, 0, 1)), None)
            lost = range(newest.sequence + 1 if newest else 1, self._ledger.next_sequence(set_name))
            shown = self._store.latest(set_name)
            self._expire_lost(set_name, [sequence for sequence in lost if sequence != shown])

    def _expire_lost_before(self, release: StoredRelease) -> None:
        """Sequences below a release that no release in the ledger has."""
        before = next(iter(self._ledger.list_releases(release.set_name, release.sequence, 1)), None)
        first = before.sequence + 1 if before else 1
        self._expire_lost(release.set_name, range(first, release.sequence))

    def _expire_lost(self, set_name: str, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            count = self._stored_chunks(set_name, sequence)
            if count is not None:
                self._store.expire(set_name, sequence, count, self._grace_seconds)

    def _stored_chunks(self, set_name: str, sequence: int) -> int | None:
        """How many chunks the store's own manifest names; None if there is none, and no reader finds its bits then."""
        with suppress(NotFound, ReleaseRejected):
            return len(open_manifest(self._store.manifest(set_name, sequence)).chunk_sha256)
        return None

    def forget(self, set_name: str, releases: Sequence[StoredRelease]) -> None:
        """Remove a set's pointer and releases from the store; the caller holds ``locks[set_name]``. Raises Unavailable."""
        self.delays.pop(set_name, None)
        counts: dict[int, int | None] = {release.sequence: chunk_count(release) for release in releases}
        for sequence in range(1, self._ledger.next_sequence(set_name)):  # a confirmed loss may have left some
            if sequence not in counts:
                counts[sequence] = self._stored_chunks(set_name, sequence)
        self._store.remove(set_name, [(sequence, count) for sequence, count in counts.items() if count is not None])


class DeliveryWorker:
    """A thread that delivers pending releases with capped back-off; reconciles, and calls ``housekeeping``, once a period.

    revive: for a store that is the service's own process: starts it again if it has ended, and returns whether it had; then
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
                begun = time.monotonic()
                due = begun >= next_reconcile
                with ExitStack() as always:  # each is tried, whatever keeps the one before; the last error is logged
                    if due:
                        always.callback(self._housekeeping)
                        always.callback(self._delivery.reconcile)  # comes before the one above
                    self._delivery.deliver_pending()
                if due:
                    ended = time.monotonic()
                    next_reconcile = ended + max(self._reconcile_seconds, LEAST_REST * (ended - begun))
                pause = SHORTEST_PAUSE
                idle = min(max(0.0, next_reconcile - time.monotonic()), self._longest_idle)
            except VeilsetError as error:
                lasting = isinstance(error, StoreMisconfigured)  # an operator has to change a setting
                level = log.error if lasting else log.warning
                level("delivery delayed", reason=error.reason, kind=error.details.get("kind", ""), cause=error.message)
                idle = LONGEST_PAUSE if lasting else pause
                pause = min(2 * pause, LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001 - the thread must outlive an unforeseen error
                kind, places = type(error).__name__, error_places(error)
                log.error("delivery failed", kind=kind, places=places)  # noqa: TRY400 - its text may hold elements
                idle = pause
                pause = min(2 * pause, LONGEST_PAUSE)
            self._wake.wait(idle)
            self._wake.clear()
