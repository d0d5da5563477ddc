"""Observability: the request log always; metrics and traces if they are switched on.

Neither prometheus_client nor OpenTelemetry is imported unless its option is given: both cost start-up time, and the second
is an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from veilset._service.endpoint import is_loopback
from veilset.errors import FailedPrecondition, NotFound, VeilsetError, must_be
from veilset_server.metrics.logs import CallLog
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.rpc.call import label_of
from veilset_server.rpc.server import end_process
from veilset_server.rpc.serving import CallObserver
from veilset_server.settings import Settings
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.publishing import Publishing

if TYPE_CHECKING:
    from veilset_server.metrics.instruments import Instruments
    from veilset_server.metrics.listener import MetricsListener
    from veilset_server.metrics.tracing import CallTracer

PORT_LOST = "port-lost"
"""File in the state folder whose time is when the process last ended since its port did not answer."""


class Monitoring:
    """Context manager; ``metrics_address`` is where Prometheus finds the metrics, None without a port for them.

    Raises Unavailable (the metrics' port is taken) and FailedPrecondition (the extra ``tracing`` is missing).
    """

    def __init__(self, settings: Settings, ledger: SqliteLedger, methods: Collection[str]) -> None:
        """methods: /service/Method of everything that the server serves."""
        self._methods = methods
        self._ledger = ledger
        self.observers: list[CallObserver] = [CallLog()]
        self._instruments: Instruments | None = None
        self._listener: MetricsListener | None = None
        self._tracer: CallTracer | None = None
        self._running = ExitStack()
        self._port_lost = settings.state / PORT_LOST
        if settings.metrics_port is not None:
            self._measure(settings, settings.metrics_port)
        if settings.otlp_endpoint is not None:
            self._tracer = _tracer(settings.otlp_endpoint)
            self.observers.append(self._tracer)

    def _measure(self, settings: Settings, port: int) -> None:
        from prometheus_client import CollectorRegistry, disable_created_metrics

        from veilset_server.metrics.collectors import CertificateCollector, LedgerCollector, ProcessCollector
        from veilset_server.metrics.instruments import CallMeter, Instruments
        from veilset_server.metrics.listener import MetricsListener

        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._instruments = Instruments(
            registry, sorted({label_of(method.rpartition("/")[2]) for method in self._methods})
        )
        self.observers.append(CallMeter(self._instruments))
        if self._port_lost.exists():
            self._instruments.port_lost_at.set(self._port_lost.stat().st_mtime)
        registry.register(LedgerCollector(self._ledger, settings.metrics_max_sets))
        registry.register(ProcessCollector(settings.state))
        if settings.tls_cert is not None:
            registry.register(CertificateCollector(settings.tls_cert))
        tls = None
        if settings.tls_cert and settings.tls_key and not is_loopback(settings.metrics_host):
            tls = (settings.tls_cert, settings.tls_key)
        self._listener = MetricsListener(registry, settings.metrics_host, port, tls)

    def __enter__(self) -> Monitoring:
        for part in (self._tracer, self._listener):
            if part is not None:
                self._running.enter_context(part)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def metrics_address(self) -> str | None:
        """host:port of the metrics listener, or None without one."""
        return self._listener.address if self._listener is not None else None

    def refusing(self, set_ids: Callable[[], Collection[int]]) -> None:
        """Report how many of these sets still exist; each refuses to publish because a file of it is damaged."""
        if self._instruments is not None:
            self._instruments.refusing_sets.set_function(lambda: sum(map(self._is_there, set_ids())))

    def _is_there(self, set_id: int) -> bool:
        try:
            self._ledger.get_set_by_id(set_id)
        except NotFound:
            return False
        except VeilsetError:  # the ledger cannot be read just now
            return True
        return True

    def store(self, store: ReleaseStore) -> ReleaseStore:
        """The same store, measured if metrics are on."""
        if self._instruments is None:
            return store
        from veilset_server.metrics.instruments import MeasuredStore

        return cast("ReleaseStore", MeasuredStore(store, self._instruments))

    def anchor(self, anchor: Anchor) -> Anchor:
        """The same anchor, measured if metrics are on."""
        if self._instruments is None:
            return anchor
        from veilset_server.metrics.instruments import MeasuredAnchor

        return cast("Anchor", MeasuredAnchor(anchor, self._instruments))

    def delivery(self, *arguments: Any) -> Delivery:
        """A `Delivery` with these arguments, measured if metrics are on."""
        if self._instruments is None:
            return Delivery(*arguments)
        from veilset_server.metrics.instruments import MeasuredDelivery

        return MeasuredDelivery(self._instruments, *arguments)

    def publishing(self, *arguments: Any) -> Publishing:
        """A `Publishing` with these arguments, measured if metrics are on."""
        if self._instruments is None:
            return Publishing(*arguments)
        from veilset_server.metrics.instruments import MeasuredPublishing

        return MeasuredPublishing(self._instruments, *arguments)

    def port_answered(self) -> None:
        """Record the time at which the port answered."""
        if self._instruments is not None:
            self._instruments.port_answered_at.set_to_current_time()

    def port_lost(self, why: str) -> None:
        """Record that the port no longer answers, and end the process; the next one reports the time as a metric."""
        with suppress(OSError):
            self._port_lost.touch()
        end_process(why)

    def reload(self) -> None:
        """Read the metrics' certificate again. Raises InvalidInput; the old one stays then."""
        if self._listener is not None:
            try:
                self._listener.reload()
            except (OSError, ValueError) as error:
                raise must_be("tls-cert", f"a certificate with its key ({type(error).__name__})") from None


def _tracer(endpoint: str) -> CallTracer:
    try:
        from veilset_server.metrics.tracing import CallTracer
    except ImportError:
        raise FailedPrecondition(
            "otlp_endpoint: OpenTelemetry is not installed; pip install 'veilset[server,tracing]'"
        ) from None
    return CallTracer(endpoint, version("veilset"))
