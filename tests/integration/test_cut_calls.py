"""A call that a stopping gRPC server cuts is one to try again, whatever code gRPC gives it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.health import serves
from harness.patience import SECONDS
from veilset._service.endpoint import make_endpoint
from veilset.errors import Unavailable, VeilsetError


class Silent(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Takes calls in and never answers; or ends them with a code of its own."""

    def __init__(self, code: grpc.StatusCode | None = None) -> None:
        self.code = code
        self.called, self.over = threading.Event(), threading.Event()

    def Check(self, request: object, context: grpc.ServicerContext) -> health_pb2.HealthCheckResponse:  # noqa: N802 - gRPC's name
        context.add_callback(self.over.set)
        self.called.set()
        if self.code is not None:
            context.abort(self.code, "")
        self.over.wait(SECONDS)


def ends_with(code: grpc.StatusCode | None) -> VeilsetError:
    """What the library raises for a call that the server ends with ``code``, or cuts by stopping."""
    with ThreadPoolExecutor(2) as threads:
        server, silent = grpc.server(threads), Silent(code)
        health_pb2_grpc.add_HealthServicer_to_server(silent, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        asking = threads.submit(serves, make_endpoint(f"127.0.0.1:{port}"))
        assert silent.called.wait(SECONDS)
        if code is None:
            server.stop(None)
        with pytest.raises(VeilsetError) as ended:
            asking.result(SECONDS)
        server.stop(None).wait()
        return ended.value


def test_a_call_that_is_cut_is_unavailable() -> None:
    """Its outcome is unknown, which Unavailable says."""
    assert isinstance(ends_with(None), Unavailable)


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE])
def test_so_is_one_that_the_server_cancels(code: grpc.StatusCode) -> None:
    """The library cancels none of its own that it waits for."""
    assert isinstance(ends_with(code), Unavailable)


def test_another_fault_is_not() -> None:
    """Trying again would not help."""
    error = ends_with(grpc.StatusCode.INTERNAL)
    assert not isinstance(error, Unavailable)
    assert error.details["code"] == "INTERNAL"
