"""An OpenTelemetry collector of the tests' own: a gRPC server that keeps the spans it gets, as they came."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from harness.programs import wait_until


class SpanReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Context manager; ``endpoint`` is what --otlp-endpoint takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Any] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server  # without types
        add(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        with self._lock:
            self._requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def __enter__(self) -> SpanReceiver:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    @property
    def requests(self) -> list[Any]:
        """Everything that came."""
        with self._lock:
            return list(self._requests)

    @property
    def spans(self) -> list[Any]:
        """All spans so far."""
        return [
            s for request in self.requests for rs in request.resource_spans for ss in rs.scope_spans for s in ss.spans
        ]

    def wait_for(self, *names: str) -> None:
        """Until a span of each of these names has come."""
        wait_until(lambda: set(names) <= {span.name for span in self.spans})


def attributes(span: Any) -> dict[str, str | int]:
    """A span's attributes."""
    return {
        item.key: item.value.string_value if item.value.HasField("string_value") else item.value.int_value
        for item in span.attributes
    }
