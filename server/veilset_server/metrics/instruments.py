"""Every metric that counts or times an event. `collectors` and `ledger_collector` read the others when Prometheus asks;
deploy/METRICS.md says for each metric why it reveals nothing about the data.

The rule: no element, batch or byte of an upload is counted and no upload is timed, since for a set with one upload without
duplicates each of these is its size. Labels take their values from fixed lists.
"""

from __future__ import annotations

import platform
from collections.abc import Collection
from importlib.metadata import version
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


ALARMING = ("DATA_LOSS", "INTERNAL", "UNKNOWN")
"""Status codes of which one call is enough for an alert."""

OUTCOMES = ("charged", "repeated", "refused", "unavailable", "failed")


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
