"""The metrics' listener alone: many silent clients, a collector that fails."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from harness.log_hooks import logs_left_alone
from harness.metrics import refused, scrape_text
from harness.programs import wait_until
from veilset.errors import Unavailable
from veilset_server.adapters.logs import configure_logs
from veilset_server.adapters.metrics.listener import CONNECTIONS, MetricsListener


class Failing(Collector):
    """Fails with a text that must not come out."""

    def collect(self) -> Iterable[Metric]:
        raise ValueError("alice@example.org")


def test_silent_clients_take_no_more_than_their_share() -> None:
    """Beyond the limit connections are closed; when they are gone it answers again."""
    registry = CollectorRegistry()
    Gauge("answer", "It.", registry=registry).set(42)
    with MetricsListener(registry, "127.0.0.1", 0) as listener:
        host, _, port = listener.address.rpartition(":")
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(CONNECTIONS + 5)]
            for connection in silent[CONNECTIONS:]:
                connection.settimeout(30)
                assert connection.recv(1) == b""

        def answers() -> bool:
            try:
                return "answer 42.0" in scrape_text(listener.address)
            except OSError:
                return False

        wait_until(answers)


def test_a_collector_that_fails_is_told_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """An error to whoever asked, a line in the log, and the next scrape is answered."""
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
