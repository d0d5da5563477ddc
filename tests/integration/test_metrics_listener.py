"""The metrics' listener alone: many silent clients, a collector that fails."""

from __future__ import annotations

import json
import select
import socket
import ssl
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from harness.certificates import make_certificates
from harness.log_hooks import logs_left_alone
from harness.metrics import refused, scrape_text
from harness.programs import wait_until
from veilset.errors import Unavailable
from veilset_server.metrics.listener import CONNECTIONS, MetricsListener
from veilset_server.metrics.logs import configure_logs


class Failing(Collector):
    """Fails with a text that must not come out."""

    def collect(self) -> Iterable[Metric]:
        raise ValueError("alice@example.org")


def test_silent_clients_shut_out_nobody() -> None:
    """Beyond the limit the oldest are closed, and a scrape is answered while all the others are there."""
    registry = CollectorRegistry()
    Gauge("answer", "It.", registry=registry).set(42)
    with MetricsListener(registry, "127.0.0.1", 0) as listener:
        host, _, port = listener.address.rpartition(":")
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(CONNECTIONS + 5)]
            assert "answer 42.0" in scrape_text(listener.address)
            assert len(ended(silent, 6)) >= 6


def ended(connections: list[socket.socket], least: int) -> list[socket.socket]:
    """Those that the listener has closed, once there are so many."""

    def closed() -> list[socket.socket]:
        return select.select(connections, [], [], 0)[0]

    wait_until(lambda: len(closed()) >= least)
    return closed()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "start",
    [b"", b"GET /metrics HTTP/1.1\r\nA: ", b"\x16\x03\x01\x02\x00\x01"],
    ids=["request", "headers", "handshake"],
)
def test_dripping_clients_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: bytes, tls: bool) -> None:
    """One that says a byte now and then gets no more time than one that says nothing; scrapes are answered meanwhile."""
    monkeypatch.setattr("veilset_server.metrics.listener.SECONDS", 1.0)
    registry = CollectorRegistry()
    Gauge("answer", "It.", registry=registry).set(42)
    made = make_certificates(tmp_path)
    trusted = ssl.create_default_context(cafile=made.authority) if tls else None
    pair = (made.certificate, made.key) if tls else None

    def answers() -> bool:
        url = f"{'https' if tls else 'http'}://{listener.address}/metrics"
        with urllib.request.urlopen(url, timeout=30, context=trusted) as answer:  # noqa: S310
            return "answer 42.0" in answer.read().decode()

    with MetricsListener(registry, "127.0.0.1", 0, pair) as listener, ExitStack() as stack:
        host, _, port = listener.address.rpartition(":")
        dripping = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(CONNECTIONS - 2)]
        for connection in dripping:
            connection.sendall(start)

        def all_have_ended() -> bool:
            for connection in dripping:
                with suppress(OSError):
                    connection.sendall(b"x")
            return len(select.select(dripping, [], [], 0)[0]) == len(dripping)

        assert answers()
        wait_until(all_have_ended)
        assert answers()


def test_a_collector_that_fails_is_told_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """An error to the caller, a line in the log, and the next scrape is answered."""
    registry = CollectorRegistry()
    failing = Failing()
    with logs_left_alone(), MetricsListener(registry, "127.0.0.1", 0) as listener:
        configure_logs()
        registry.register(failing)
        assert refused(listener.address) == 500
        registry.unregister(failing)
        assert scrape_text(listener.address).strip() == ""
    told = capsys.readouterr()
    assert "alice" not in told.out + told.err
    (line,) = [json.loads(line) for line in told.err.splitlines()]
    assert (line["event"], line["kind"]) == ("metrics failed", "ValueError")


def test_a_taken_port_is_told() -> None:
    """By the name of the option."""
    with MetricsListener(CollectorRegistry(), "127.0.0.1", 0) as listener:
        port = int(listener.address.rpartition(":")[2])
        with pytest.raises(Unavailable, match="metrics_port"):
            MetricsListener(CollectorRegistry(), "127.0.0.1", port)
