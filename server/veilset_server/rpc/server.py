"""The port: gRPC's threaded server, with health and reflection beside the service, all behind one interceptor; its
certificates; and the watch that the port answers.

gRPC's asyncio server is not used: one packet with a path that is not UTF-8, from any caller, ends its loop for good.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from veilset._service.endpoint import host_and_port
from veilset._service.pem import read_authorities, read_pair
from veilset.errors import InvalidInput, Unavailable
from veilset.v1 import membership_pb2, membership_pb2_grpc
from veilset_server.rpc.call import CallPool, connections
from veilset_server.rpc.service import MembershipService
from veilset_server.rpc.serving import Serving
from veilset_server.settings import Settings

MAX_METADATA_BYTES = 16 << 10
MAX_STREAMS_PER_CONNECTION = 256
IDLE_CONNECTION_MILLISECONDS = 60_000
"""How long a connection may be without a call; a client's next call makes another."""

HANDSHAKE_MILLISECONDS = 10_000

SERVICE_NAME = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].full_name

ASK_SECONDS = 2.0
"""How often it is asked."""

ANSWER_SECONDS = 15.0
"""How long an answer may take; a busy machine is no reason to end."""

MOST_CLOSED, MOST_SILENT = 2, 4
"""How many connections may be refused, and how many questions stay without an answer, in a row."""

HEALTH_CHECK = "/grpc.health.v1.Health/Check"

log = structlog.get_logger(__name__)

_Seen = tuple[tuple[int, int, int], ...]


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


class PortWatch:
    """Context manager around the thread that asks, and around the hook that sees a thread of gRPC's server die.

    Two questions: does the port take a connection; does the server behind it answer a health check, by a socket on which nothing
    else is served (`RpcServer.inside`), as the port itself may ask for a certificate.
    answered: called after each good answer. lost: called once with the reason, when the port does not answer any more.
    """

    def __init__(
        self, host: str, server: RpcServer, answered: Callable[[], object], lost: Callable[[str], object]
    ) -> None:
        self._address = (reachable(host), server.port)
        self._inside = server.inside
        self._threads: Collection[threading.Thread] = server.threads
        self._answered = answered
        self._lost = lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="port", daemon=True)

    def __enter__(self) -> PortWatch:
        self._hook, threading.excepthook = threading.excepthook, self._died
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        threading.excepthook = self._hook

    def _died(self, uncaught: threading.ExceptHookArgs) -> None:
        self._hook(uncaught)
        if uncaught.thread in self._threads and not self._over.is_set():
            self._lost(f"a thread of the server ended with {uncaught.exc_type.__name__}")

    def _watch(self) -> None:
        closed = silent = 0
        with grpc.insecure_channel(self._inside, [("grpc.enable_http_proxy", 0)]) as channel:
            ask: Any = channel.unary_unary(HEALTH_CHECK)
            while not self._over.wait(ASK_SECONDS):
                closed = 0 if self._is_open() else closed + 1
                silent = 0 if _answers(ask) else silent + 1
                if self._over.is_set():
                    return
                if not closed and not silent:
                    self._answered()
                elif closed >= MOST_CLOSED:
                    self._lost("the port refuses connections")
                elif silent >= MOST_SILENT:
                    self._lost(f"no answer to {silent} health checks in a row")

    def _is_open(self) -> bool:
        """Whether a connection is taken; what else keeps us from one, such as a shortage of descriptors, says nothing of it."""
        try:
            with socket.create_connection(self._address, ANSWER_SECONDS):
                return True
        except ConnectionRefusedError:
            return False
        except OSError:
            return True


def _answers(ask: Any) -> bool:
    """Any answer will do, a refusal too."""
    try:
        ask(b"", timeout=ANSWER_SECONDS)
    except grpc.RpcError as error:
        return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return True


def reachable(host: str) -> str:
    """Where this process reaches what listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not listened on


def end_process(why: str) -> None:
    """Write one line to the log and end the process with status EX_SOFTWARE (70) at once: what was acknowledged is on
    disk, and the next start carries on, as after a kill."""
    log.critical("the port does not answer; the process ends, restart it", why=why)
    sys.stderr.flush()
    os._exit(os.EX_SOFTWARE)


class ServerCertificates:
    """A certificate chain and its key in PEM files, and the authority whose clients are let in (mTLS) if there is one.

    With a client authority every client has to show a certificate that it signed; without, none is asked for.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Reads the files. Raises InvalidInput naming the option: unreadable, no PEM, not a pair, or not valid now."""
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._lock = threading.Lock()
        self._seen = self._look()
        self._current = self._read()
        self._delivered = self._current

    def credentials(self) -> grpc.ServerCredentials:
        """What a server's port is opened with."""
        return grpc.dynamic_ssl_server_credentials(
            self._current,
            self._newer,  # type: ignore[arg-type]  # gRPC takes None for "as before"; the types do not say so
            require_client_authentication=self._client_ca is not None,
        )

    def reload(self) -> bool:
        """Read the files again; whether the certificates are now those in the files. What is refused is logged."""
        with self._lock:
            self._seen = self._look()
            return self._take()

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC in its own threads at every handshake; None where nothing is new. Must not raise."""
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._take()
            if self._delivered is self._current:
                return None
            self._delivered = self._current
            return self._current

    def _take(self) -> bool:
        try:
            self._current = self._read()
        except InvalidInput as error:
            log.error("new certificate refused, the old one stays", field=error.field, why=error.message)  # noqa: TRY400 - by its name, not its trace
            return False
        log.info("certificate read again")
        return True

    def _read(self) -> grpc.ServerCertificateConfiguration:
        chain, secret = read_pair("tls-cert", self._cert, "tls-key", self._key)
        authorities = read_authorities("client-ca", self._client_ca) if self._client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([(secret, chain)], root_certificates=authorities)

    def _look(self) -> _Seen:
        """Which files there are now, as far as one can see without reading them."""
        return tuple(_state(path) for path in (self._cert, self._key, self._client_ca) if path is not None)


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()  # of what a link points to: orchestrators exchange links
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
