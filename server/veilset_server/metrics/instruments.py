"""Every metric that counts or times an event, and the parts of the service that record them: their behaviour is unchanged.
`collectors` reads the other metrics when Prometheus asks; deploy/METRICS.md says for each metric why it reveals nothing about
the data.

The rule: no element, batch or byte of an upload is counted and no upload is timed, since for a set with one upload without
duplicates each of these is its size. Labels take their values from fixed lists.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from veilset.errors import FailedPrecondition, InvalidInput, NotFound, StorageFull, Unavailable, VeilsetError
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.records import StoredRelease
from veilset_server.rpc.call import UPLOAD, Call
from veilset_server.rpc.serving import CallObserver
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.publishing import Publishing, PublishRequest
from veilset_server.usecases.restoring import Reconciled

CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


ALARMING = ("DATA_LOSS", "INTERNAL", "UNKNOWN")
"""Status codes of which one call is enough for an alert."""

OUTCOMES = ("charged", "repeated", "refused", "unavailable", "failed")

UNTIMED = frozenset({"PublishRelease", "DeleteSet", UPLOAD})
"""The first two take, or wait for, the time of a publish, which grows with what the set holds; an upload's grows with what is
sent, also where it is one call. All other unary calls wait for a name at most, whose lock is not held while a publish is waited
for."""


class Instruments:
    """All these metrics, in ``registry``. Thread-safe, as the metrics of prometheus_client are.

    Series that an alert watches exist with value 0 from the start: Prometheus sees no increase in a series that begins at 1.
    methods: names of all methods that the server serves.
    """

    def __init__(self, registry: CollectorRegistry, methods: Collection[str] = ()) -> None:
        self.calls_started = Counter(
            "veilset_rpc_started_total", "Calls that began, streams too.", ["method"], registry=registry
        )
        self.calls_handled = Counter(
            "veilset_rpc_handled_total", "Calls that ended, by gRPC status code.", ["method", "code"], registry=registry
        )
        for method, code in product(methods, ALARMING):
            self.calls_handled.labels(method, code)
        self.call_seconds = Histogram(
            "veilset_rpc_duration_seconds",
            "How long unary calls took that wait for no set; streams are not timed.",
            ["method"],
            buckets=CALL_SECONDS,
            registry=registry,
        )
        self.open_streams = Gauge("veilset_rpc_open_streams", "Streams open now.", ["method"], registry=registry)
        self.port_answered_at = Gauge(
            "veilset_port_answered_timestamp_seconds",
            "When the port last answered the service itself, by a connection and a health check.",
            registry=registry,
        )
        self.port_answered_at.set_to_current_time()  # it is about to be opened
        self.port_lost_at = Gauge(
            "veilset_port_lost_timestamp_seconds",
            "When the process last ended since its port did not answer; 0 for never.",
            registry=registry,
        )
        self.publishes = Counter(
            "veilset_publish_total",
            f"Attempts to charge a release: {', '.join(OUTCOMES)} (repeated: an earlier one was returned).",
            ["outcome"],
            registry=registry,
        )
        for outcome in OUTCOMES:
            self.publishes.labels(outcome)
        self.reconciles = Counter(
            "veilset_reconcile_passes_total", "Comparisons of Redis with the ledger.", ["outcome"], registry=registry
        )
        for outcome in ("ok", "failed"):
            self.reconciles.labels(outcome)
        self.restored_keys = Counter(
            "veilset_reconcile_restored_keys_total", "Keys that Redis had lost and got again.", registry=registry
        )
        self.damaged_releases = Gauge(
            "veilset_releases_damaged",
            "Published releases that Redis lacks in part and whose artefact is damaged.",
            registry=registry,
        )
        self.lost_releases = Counter(
            "veilset_releases_lost_total",
            "Releases that were charged and whose artefact was damaged before Redis had them.",
            registry=registry,
        )
        self.reconciled_at = Gauge(
            "veilset_reconcile_last_success_timestamp_seconds", "When a pass last ended well.", registry=registry
        )
        self.refusing_sets = Gauge(
            "veilset_sets_refusing", "Sets of which the last start found a file damaged.", registry=registry
        )
        self.redis_up = Gauge(
            "veilset_redis_up", "Whether Redis answered the last command and takes writes.", registry=registry
        )
        self.anchor_written = Gauge(
            "veilset_anchor_written", "Whether the anchor's last write reached the disk.", registry=registry
        )
        self.redis_failures = Counter(
            "veilset_redis_failures_total", "Operations that Redis failed.", ["operation"], registry=registry
        )
        self.redis_seconds = Histogram(
            "veilset_redis_operation_duration_seconds",
            "How long operations on Redis took, those that failed too.",
            ["operation"],
            buckets=CALL_SECONDS,
            registry=registry,
        )
        build = Info("veilset_build", "Versions of the service and of what it stands on.", registry=registry)
        build.info({"version": version("veilset"), "python": platform.python_version(), "grpc": version("grpcio")})


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
        super().__init__(*arguments, on_lost=instruments.lost_releases.inc)
        self._instruments = instruments

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
