"""The port: gRPC's threaded server, with health and reflection beside the service, all behind one interceptor.

gRPC's asyncio server is not used: one packet with a path that is not UTF-8, from anybody, ends its loop for good.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from veilset._service.endpoint import host_and_port
from veilset.errors import Unavailable
from veilset.v1 import membership_pb2, membership_pb2_grpc
from veilset_server.rpc.pool import CallPool, connections
from veilset_server.rpc.service import MembershipService
from veilset_server.rpc.serving import Serving
from veilset_server.rpc.tls import ServerCertificates
from veilset_server.settings import Settings

MAX_METADATA_BYTES = 16 << 10
MAX_STREAMS_PER_CONNECTION = 256
IDLE_CONNECTION_MILLISECONDS = 60_000
"""How long a connection may be without a call; a client's next call makes another."""

HANDSHAKE_MILLISECONDS = 10_000

SERVICE_NAME = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].full_name


def served_methods() -> list[str]:
    """/service/Method of everything that is served."""
    services = [
        descriptor
        for module in (membership_pb2, health_pb2, reflection_pb2)
        for descriptor in module.DESCRIPTOR.services_by_name.values()
    ]
    return [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]


class RpcServer:
    """Listens from `start` to `stop`. ``port`` is where; ``threads`` are gRPC's own, without which it is deaf.

    inside: address of a socket beside it for `PortWatch`, on which health checks are served, and nothing else.
    """

    def __init__(
        self,
        settings: Settings,
        service: MembershipService,
        serving: Serving,
        pool: CallPool,
        certificates: ServerCertificates | None,
    ) -> None:
        """Raises Unavailable where the address cannot be listened on."""
        limits = settings.limits
        self._pool = pool
        self._server = grpc.server(
            self._pool,  # type: ignore[arg-type]  # any executor will do
            interceptors=[serving],
            options=[
                ("grpc.so_reuseport", 0),  # two services on one port would share its calls
                # gRPC's own limits: they hold before the interceptor sees a call.
                ("grpc.max_receive_message_length", limits.max_message_bytes),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
                ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
                ("grpc.max_allowed_incoming_connections", connections()),
                ("grpc.max_connection_idle_ms", IDLE_CONNECTION_MILLISECONDS),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
            ],
            maximum_concurrent_rpcs=pool.most,
        )
        membership_pb2_grpc.add_MembershipServiceServicer_to_server(service, self._server)
        self._health: Any = health.HealthServicer(experimental_non_blocking=False)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self.threads: set[threading.Thread] = set()
        self.inside = f"unix-abstract:veilset-{os.getpid()}-{secrets.token_hex(8)}"
        address = host_and_port(settings.host, settings.port)
        try:
            if certificates is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, certificates.credentials())
            self._server.add_insecure_port(self.inside)
        except RuntimeError:
            raise Unavailable(
                f"port: cannot listen on {address}: it is taken, or its host cannot be resolved here"
            ) from None

    def start(self) -> None:
        """Take calls, and say so to health checks."""
        for name in ("", SERVICE_NAME):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        before = set(threading.enumerate())
        self._server.start()
        self.threads |= set(threading.enumerate()) - before

    def say_no_more(self) -> None:
        """Health says that nothing new should be sent here; calls are served all the same."""
        self._health.enter_graceful_shutdown()

    def stop(self, seconds: float) -> None:
        """Take no more calls; cut those that are open after ``seconds``; return once they have ended."""
        self._server.stop(seconds).wait()
        self._pool.shutdown()
