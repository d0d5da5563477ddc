"""Calls, publishes, delivery, the anchor and the release store with metrics. Their behaviour is unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from veilset.errors import FailedPrecondition, InvalidInput, NotFound, StorageFull, Unavailable, VeilsetError
from veilset_server.metrics.instruments import Instruments
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.call import UPLOAD, Call
from veilset_server.rpc.serving import CallObserver
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.publishing import Publishing, PublishRequest
from veilset_server.usecases.restoring import Reconciled

UNTIMED = frozenset({"PublishRelease", "DeleteSet", UPLOAD})
"""The first two take, or wait for, the time of a publish, which grows with what the set holds; an upload's grows with what is
sent, also where it is one call. All other unary calls wait for a name at most, whose lock is not held while a publish is waited
for."""


class CallMeter(CallObserver):
    """Counts calls and times some. The label ``method`` is one of the services' own names, or "other"."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def started(self, call: Call) -> None:
        """Count the call, and a stream as open."""
        self._instruments.calls_started.labels(call.label).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).inc()

    def ended(self, call: Call) -> None:
        """Count the call by its status. The duration of a stream shows how much was sent, so only unary calls are timed,
        and of them those that bring no elements and wait for no set."""
        self._instruments.calls_handled.labels(call.label, call.code.name).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).dec()
        elif call.label not in UNTIMED:
            self._instruments.call_seconds.labels(call.label).observe(call.seconds())


class MeasuredPublishing(Publishing):
    """Counts the outcome of each publish. All refusals are one outcome; only the caller learns the reason."""

    def __init__(self, instruments: Instruments, *arguments: Any) -> None:
        """``arguments`` are passed on to `Publishing`."""
        super().__init__(*arguments)
        self._instruments = instruments

    def charge(self, request: PublishRequest) -> StoredRelease:
        """Charge as `Publishing.charge` does, and count how it ended."""
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
        """Find as `Publishing.find` does, and count a repeated request."""
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
        """``arguments`` are passed on to `Delivery`."""
        super().__init__(*arguments)
        self._instruments = instruments

    def _mark(self, release: StoredRelease, state: ReleaseState) -> None:
        """`Delivery._mark`, by which alone a release that waited for Redis is given up."""
        super()._mark(release, state)
        if state is ReleaseState.LOST:
            self._instruments.lost_releases.inc()

    def reconcile(self, set_name: str | None = None, *, whole: bool = False) -> Reconciled:
        """Compare as `Delivery.reconcile` does, and record the result."""
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
    """An anchor whose metric says whether the last write succeeded. All else is the anchor's own."""

    def __init__(self, anchor: Anchor, instruments: Instruments) -> None:
        self._anchor = anchor
        self._written = instruments.anchor_written

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._anchor, name)
        return self._observed(found) if name in ("raise_to", "write") else found

    def _observed(self, write: Callable[..., None]) -> Callable[..., None]:
        def observed(*arguments: Any) -> None:
            try:
                write(*arguments)
            except BaseException:
                self._written.set(0)
                raise
            self._written.set(1)

        return observed


class MeasuredStore:
    """A release store that counts and times its operations. They are labelled by the method names of the port."""

    def __init__(self, store: ReleaseStore, instruments: Instruments) -> None:
        self._store = store
        self._instruments = instruments

    def __getattr__(self, operation: str) -> Any:
        return partial(self._timed, operation)

    def _timed(self, operation: str, *arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            answer = getattr(self._store, operation)(*arguments, **named)
        except Unavailable:
            self._instruments.redis_up.set(0)
            self._instruments.redis_failures.labels(operation).inc()
            raise
        else:
            self._instruments.redis_up.set(1)
            return answer
        finally:
            self._instruments.redis_seconds.labels(operation).observe(time.monotonic() - began)
