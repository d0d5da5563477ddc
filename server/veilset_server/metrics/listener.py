"""The HTTP listener that Prometheus asks: GET /metrics, and nothing else. A port of its own, so that it can be kept away
from callers; with the service's certificate where there is one.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from veilset._service.endpoint import host_and_port
from veilset.errors import Unavailable
from veilset_server.process import error_places
from veilset_server.rpc.allowances import EvictingSlots

SECONDS = 5.0
"""How long a connection may take from its beginning to the last byte of the answer, however it goes about it."""

CONNECTIONS = 32

PATHS = ("/metrics", "/metrics/")

log = structlog.get_logger(__name__)


class MetricsListener:
    """Context manager around the listener; ``address`` is host:port. tls: (certificate, key) as PEM files.

    Raises Unavailable if the port is taken.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int, tls: tuple[Path, Path] | None = None) -> None:
        self._tls = tls
        kind = _ServerV6 if ":" in host else _Server
        try:
            self._server = kind((host, port), _Handler)
        except OSError:
            where = host_and_port(host, port)
            raise Unavailable(
                f"metrics_port: cannot listen on {where}: it is taken, or its host cannot be resolved here"
            ) from None
        try:
            self.reload()
        except BaseException:
            self._server.server_close()
            raise
        self._server.set_app(_only_metrics(make_wsgi_app(registry)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self.address = host_and_port(host, self._server.server_port)

    def reload(self) -> None:
        """Read certificate and key again; connections from now on get them. Raises OSError (ssl.SSLError is one)."""
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            self._server.context = context

    def __enter__(self) -> MetricsListener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, in which its handshake happens too: so a silent client delays no other."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = (
        128  # of connections not yet accepted; beyond it the system has clients try again, seconds later
    )
    context: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._places = EvictingSlots(CONNECTIONS, CONNECTIONS)
        self._ends_at: dict[socket.socket, float] = {}
        super().__init__(*arguments)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """If too many connections are open the oldest is closed, so that a scrape is answered under any load."""
        try:
            connection = request.dup()  # of its own: under TLS another object takes ``request``'s place
        except OSError:
            self.shutdown_request(request)
            return
        with connection, self._places.take(str(client_address[0]), partial(_cut, connection)):
            self._ends_at[connection] = time.monotonic() + SECONDS
            try:
                super().process_request_thread(request, client_address)
            finally:
                del self._ends_at[connection]

    def service_actions(self) -> None:
        """Twice a second: cut what has had its time, also what says a byte now and then."""
        now = time.monotonic()
        for connection, ends_at in list(self._ends_at.items()):
            if now > ends_at:
                _cut(connection)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(SECONDS)
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        try:
            super().finish_request(request, client_address)
        finally:
            if self.context is not None:
                request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or spoke no TLS is no fault of ours, and what it said goes nowhere."""

    def server_bind(self) -> None:
        """Without the base class's look-up of the host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def _cut(connection: socket.socket) -> None:
    """End a connection that another thread is busy with: whatever that does next with it fails."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's
        """Scrapes are not logged."""

    def get_stderr(self) -> Any:
        """Where the standard library would write the texts of errors."""
        return io.StringIO()

    def address_string(self) -> str:
        return str(self.client_address[0])


def _only_metrics(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _refuse(start_response, HTTPStatus.METHOD_NOT_ALLOWED)
        if environ["PATH_INFO"] not in PATHS:
            return _refuse(start_response, HTTPStatus.NOT_FOUND)
        try:
            return app(environ, start_response)
        except Exception as error:  # noqa: BLE001 - one bad scrape must not be the last
            log.error("metrics failed", kind=type(error).__name__, places=error_places(error))  # noqa: TRY400 - not its text
            return _refuse(start_response, HTTPStatus.INTERNAL_SERVER_ERROR)

    return answer


def _refuse(start_response: Callable[..., Any], status: HTTPStatus) -> Iterable[bytes]:
    start_response(f"{status.value} {status.phrase}", [("Content-Length", "0")])
    return []
