"""Calls, publishes, delivery, the anchor and the release store with metrics. Their behaviour is unchanged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from veilset.errors import FailedPrecondition, InvalidInput, NotFound, StorageFull, Unavailable, VeilsetError
from veilset_server.metrics.instruments import Instruments
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.records import Charged, Mark, ReleaseState, StoredRelease
from veilset_server.rpc.call import UPLOAD, Call
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.publishing import Publishing, PublishRequest
from veilset_server.usecases.restoring import Reconciled

UNTIMED = frozenset({"PublishRelease", "DeleteSet", UPLOAD})
"""The first two take, or wait for, the time of a publish, which grows with what the set holds; an upload's grows with what is
sent, also where it is one call. All other unary calls wait for a name at most, whose lock is not held while a publish is waited
for."""


class CallMeter:
    """A `serving.CallObserver`. The label ``method`` is one of the services' own names, or "other"."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def started(self, call: Call) -> None:
        """One more."""
        self._instruments.calls_started.labels(call.label).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).inc()

    def opened(self, call: Call) -> None:
        """Nothing to count."""

    def ended(self, call: Call) -> None:
        """One less. How long a stream was open tells how much came through it, so only unary calls are timed,
        and of them those that bring no elements and wait for no set."""
        self._instruments.calls_handled.labels(call.label, call.code.name).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).dec()
        elif call.label not in UNTIMED:
            self._instruments.call_seconds.labels(call.label).observe(call.seconds())


class MeasuredPublishing(Publishing):
    """Counts what became of each publish. All refusals are one outcome: which one it was only the caller is told."""

    def __init__(self, instruments: Instruments, *arguments: Any) -> None:
        """``arguments`` are `Publishing`'s."""
        super().__init__(*arguments)
        self._instruments = instruments

    def charge(self, request: PublishRequest) -> StoredRelease:
        """`Publishing.charge`."""
        try:
            release = super().charge(request)
        except VeilsetError as error:
            self._instruments.publishes.labels(_outcome(error)).inc()
            raise
        except BaseException:
            self._instruments.publishes.labels("failed").inc()
            raise
        self._instruments.publishes.labels("charged").inc()
        return release

    def find(self, request: PublishRequest) -> StoredRelease | None:
        """`Publishing.find`."""
        found = super().find(request)
        if found is not None:
            self._instruments.publishes.labels("repeated").inc()
        return found


def _outcome(error: VeilsetError) -> str:
    match error:
        case Unavailable() | StorageFull():
            return "unavailable"
        case FailedPrecondition() | InvalidInput() | NotFound():
            return "refused"
        case _:
            return "failed"


class MeasuredDelivery(Delivery):
    """Counts the passes that compare Redis with the ledger, the keys that they restored, and damaged and lost releases."""

    def __init__(self, instruments: Instruments, *arguments: Any) -> None:
        """``arguments`` are `Delivery`'s."""
        super().__init__(*arguments)
        self._instruments = instruments

    def _mark(self, release: StoredRelease, state: ReleaseState) -> None:
        """`Delivery._mark`, by which alone a release that waited for Redis is given up."""
        super()._mark(release, state)
        if state is ReleaseState.LOST:
            self._instruments.lost_releases.inc()

    def reconcile(self, set_name: str | None = None, *, whole: bool = False) -> Reconciled:
        """`Delivery.reconcile`."""
        passes = self._instruments.reconciles
        try:
            done = super().reconcile(set_name, whole=whole)
        except BaseException:
            passes.labels("failed").inc()
            raise
        finally:
            self._instruments.damaged_releases.set(self.damaged)
        passes.labels("ok").inc()
        self._instruments.restored_keys.inc(done.restored)
        self._instruments.reconciled_at.set_to_current_time()
        return done


class MeasuredAnchor:
    """An anchor that tells whether it can be written."""

    def __init__(self, anchor: Anchor, instruments: Instruments) -> None:
        self._anchor = anchor
        self._written = instruments.anchor_written

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._written.set(0)
            raise
        self._written.set(1)

    @property
    def missing(self) -> bool:
        return self._anchor.missing

    def read(self, set_name: str, account: str) -> Mark:
        return self._anchor.read(set_name, account)

    def charged(self) -> Charged:
        return self._anchor.charged()

    def raise_to(self, charged: Charged) -> None:
        with self._told():
            self._anchor.raise_to(charged)

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        with self._told():
            self._anchor.write(set_name, account, mark)


class MeasuredStore:
    """A release store that tells whether it is there. Operations are labelled by the port's method names."""

    def __init__(self, store: ReleaseStore, instruments: Instruments) -> None:
        self._store = store
        self._instruments = instruments

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except Unavailable:
            self._instruments.redis_up.set(0)
            self._instruments.redis_failures.labels(operation).inc()
            raise
        else:
            self._instruments.redis_up.set(1)
        finally:
            self._instruments.redis_seconds.labels(operation).observe(time.monotonic() - began)

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        with self._timed("upload"):
            self._store.upload(set_name, sequence, manifest, chunks)

    def move_pointer(self, set_name: str, sequence: int) -> None:
        with self._timed("move_pointer"):
            self._store.move_pointer(set_name, sequence)

    def latest(self, set_name: str) -> int:
        with self._timed("latest"):
            return self._store.latest(set_name)

    def manifest(self, set_name: str, sequence: int) -> bytes:
        with self._timed("manifest"):
            return self._store.manifest(set_name, sequence)

    def missing_chunks(self, set_name: str, sequence: int, manifest: bytes, sizes: Sequence[int]) -> list[int]:
        with self._timed("missing_chunks"):
            return self._store.missing_chunks(set_name, sequence, manifest, sizes)

    def changed_chunks(self, set_name: str, sequence: int, sha256: Mapping[int, bytes]) -> list[int]:
        with self._timed("changed_chunks"):
            return self._store.changed_chunks(set_name, sequence, sha256)

    def restore(self, set_name: str, sequence: int, index: int, value: bytes) -> None:
        with self._timed("restore"):
            self._store.restore(set_name, sequence, index, value)

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        with self._timed("expire"):
            self._store.expire(set_name, sequence, chunk_count, grace_seconds)

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        with self._timed("remove"):
            self._store.remove(set_name, sequences)

    def probe(self, set_name: str) -> None:
        with self._timed("probe"):
            self._store.probe(set_name)

    def ping(self) -> None:
        with self._timed("ping"):
            self._store.ping()

    def evicts(self) -> str:
        with self._timed("evicts"):
            return self._store.evicts()
