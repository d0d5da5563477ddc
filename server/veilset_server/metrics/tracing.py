"""Spans of calls to an OpenTelemetry collector (extra ``tracing``). Imported only where an endpoint is given.

A span holds the method, its status, and the set's name once the service has confirmed by an OK that there is such a set:
until then the name is the caller's text and may be anything. It holds no element, no count, no message. The span of a
stream ends with its first answer, and that of an upload has no length at all, because that would reveal the upload's size.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from types import TracebackType
from urllib.parse import urlsplit

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from veilset_server.rpc.call import UPLOAD, Call
from veilset_server.rpc.serving import CallObserver

KNOWN_NAMES = 10_000
EXPORT_SECONDS = 5
DELAY_MILLISECONDS = 1000


class CallTracer(CallObserver):
    """An observer that exports spans; a context manager that sends what is left at its end.

    endpoint: URL of an OTLP/gRPC collector, http:// for plain text.
    """

    def __init__(self, endpoint: str, version: str) -> None:
        exporter = OTLPSpanExporter(
            endpoint=endpoint, insecure=urlsplit(endpoint).scheme == "http", timeout=EXPORT_SECONDS
        )
        # Made here, not read from OTEL_RESOURCE_ATTRIBUTES; OTEL_EXPORTER_OTLP_HEADERS and its like hold.
        resource = Resource({"service.name": "veilset", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=DELAY_MILLISECONDS))
        self._tracer = self._provider.get_tracer("veilset_server")
        self._spans: dict[Call, trace.Span] = {}
        self._confirmed: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> CallTracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._provider.shutdown()

    def started(self, call: Call) -> None:
        """Begin a span, under the caller's if it sent a ``traceparent``."""
        carrier = {key: value for key, value in call.metadata if key == "traceparent" and isinstance(value, str)}
        parent = TraceContextTextMapPropagator().extract(carrier)  # no tracestate: it is free text
        attributes = {"rpc.system": "grpc", "rpc.service": call.service, "rpc.method": call.label}
        self._spans[call] = self._tracer.start_span(
            f"{call.service}/{call.label}", parent, trace.SpanKind.SERVER, attributes
        )

    def opened(self, call: Call) -> None:
        """End the span of a stream at its first answer."""
        self._finish(call, grpc.StatusCode.OK)

    def ended(self, call: Call) -> None:
        """The span of any other call ends here, and that of a stream that was never answered."""
        self._finish(call, call.code)

    def _finish(self, call: Call, code: grpc.StatusCode) -> None:
        span = self._spans.pop(call, None)
        if span is None:
            return
        if call.set_name and (code is grpc.StatusCode.OK or call.set_name in self._confirmed):
            self._confirm(call.set_name)
            span.set_attribute("veilset.set", call.set_name)
        span.set_attribute("rpc.grpc.status_code", int(code.value[0]))
        if code is not grpc.StatusCode.OK:
            span.set_status(trace.StatusCode.ERROR)
        span.end(span.start_time if call.label == UPLOAD and isinstance(span, ReadableSpan) else None)

    def _confirm(self, name: str) -> None:
        with self._lock:
            self._confirmed[name] = None
            self._confirmed.move_to_end(name)
            if len(self._confirmed) > KNOWN_NAMES:
                self._confirmed.popitem(last=False)
