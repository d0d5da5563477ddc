"""A connection that cannot be made says why, and by which option: gRPC says UNAVAILABLE for all of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from harness.certificates import Authority, Certificates
from harness.health import serves
from veilset._service.channel import is_serving
from veilset._service.endpoint import make_endpoint
from veilset.errors import InvalidInput, Unavailable


@dataclass(frozen=True, slots=True)
class Shop:
    """Two authorities and what they issued."""

    own: Authority
    foreign: Authority
    good: Certificates
    expired: Certificates
    named_otherwise: Certificates
    client: Certificates
    foreign_client: Certificates


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Made once."""
    folder = tmp_path_factory.mktemp("shop")
    own, foreign = Authority(folder, "own"), Authority(folder, "foreign")
    return Shop(
        own,
        foreign,
        own.issue("good"),
        own.issue("expired", age=timedelta(days=3), lifetime=timedelta(days=2)),
        own.issue("otherwise", common_name="elsewhere.example", alternative_names=["elsewhere.example"]),
        own.issue("client", common_name="a producer"),
        foreign.issue("foreign-client", common_name="unknown"),
    )


@contextmanager
def served(pair: Certificates | None, client_ca: Path | None = None) -> Iterator[int]:
    """A gRPC server that only tells its health; gives its port. Its certificate may be one that the service would refuse."""
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    healthy = health.HealthServicer()
    healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    if pair is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        authorities = client_ca.read_bytes() if client_ca is not None else None
        credentials = grpc.ssl_server_credentials(
            [(pair.key.read_bytes(), pair.certificate.read_bytes())], authorities, client_ca is not None
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def test_with_the_right_files_it_answers(shop: Shop) -> None:
    """By name and by address, with and without a client certificate; else no fault below would prove anything."""
    with served(shop.good) as port:
        for host in ("localhost", "127.0.0.1"):
            assert serves(make_endpoint(f"{host}:{port}", ca=shop.own.certificate))
            assert serves(make_endpoint(f"tls://{host}:{port}", ca=shop.own.certificate))
    with served(shop.good, shop.own.certificate) as port:
        client = shop.client
        assert serves(
            make_endpoint(f"localhost:{port}", ca=shop.own.certificate, cert=client.certificate, key=client.key)
        )
    with served(None) as port:
        assert serves(make_endpoint(f"localhost:{port}"))


FAULTS = {
    "signed by another": ("good", "own: foreign", False, "not signed by the authority in"),
    "signed by nobody well known": ("good", "", False, "not signed by the well-known authorities"),
    "for another name": ("named_otherwise", "own", False, "not for the name localhost"),
    "expired": ("expired", "own", False, "has expired"),
    "plain text to TLS": ("good", None, False, "it speaks TLS there"),
    "plain text to mTLS": ("good", None, True, "it speaks TLS there"),
    "TLS to plain text": (None, "own", False, "it speaks plain text there"),
    "no client certificate": ("good", "own", True, "asks for a client certificate"),
    "a client certificate by another": ("good", "own; client: foreign", True, "client's certificate"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_by_name(fault: str, shop: Shop) -> None:
    """In one sentence that names the target, and so that a person knows which file or option is wrong."""
    pair, trust, mutual, text = FAULTS[fault]
    own = getattr(shop, pair) if pair is not None else None
    with served(own, shop.own.certificate if mutual else None) as port:
        ca = None
        if trust:
            ca = shop.foreign.certificate if "own: foreign" in trust else shop.own.certificate
        client = shop.foreign_client if trust and "client: foreign" in trust else None
        endpoint = make_endpoint(
            f"localhost:{port}" if trust is None else f"tls://localhost:{port}",
            ca=ca,
            cert=client.certificate if client is not None else None,
            key=client.key if client is not None else None,
        )
        with pytest.raises(Unavailable, match=text) as refused:
            serves(endpoint)
    assert f"localhost:{port}" in refused.value.message
    assert refused.value.details == {"target": f"localhost:{port}", "kind": "ENDPOINT"}


def test_nobody_there_is_told_as_before(shop: Shop) -> None:
    """With and without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for ca in (None, shop.own.certificate):
        with pytest.raises(Unavailable, match="is it running there"):
            serves(make_endpoint(f"localhost:{port}", ca=ca))


def test_one_that_takes_connections_and_is_silent_ends_in_time(shop: Shop) -> None:
    """Asking why does not hang either."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for ca in (None, shop.own.certificate):
            with pytest.raises(Unavailable, match="in time"):
                is_serving(make_endpoint(f"localhost:{port}", ca=ca), timeout_seconds=1.0)


def test_one_that_speaks_something_else_is_no_service(shop: Shop) -> None:
    """An HTTP/1 server, say; whatever it answers, the error is Unavailable."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            port = listener.getsockname()[1]
            for ca in (None, shop.own.certificate):
                with pytest.raises(Unavailable):
                    serves(make_endpoint(f"localhost:{port}", ca=ca))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_files_that_hold_no_certificate_are_refused_before_connecting(shop: Shop, tmp_path: Path) -> None:
    """By the name of the argument."""
    (tmp_path / "empty.pem").touch()
    wrong: dict[str, dict[str, Any]] = {
        "ca": {"ca": tmp_path / "empty.pem"},
        "cert": {"cert": tmp_path / "empty.pem", "key": shop.client.key},
        "key": {"cert": shop.client.certificate, "key": shop.foreign_client.key},
    }
    for field, files in wrong.items():
        with pytest.raises(InvalidInput) as refused:
            serves(make_endpoint("localhost:1", **files))
        assert refused.value.field == field
