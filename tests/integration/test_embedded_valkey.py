"""The service's own Valkey: one that ends is started again, at the same address; one that lives is left alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from veilset._reader.redis_client import connect_redis
from veilset_server.redis.embedded_valkey import EmbeddedValkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """One that runs."""
    with EmbeddedValkey(tmp_path / "valkey") as found:
        yield found


def child(valkey: EmbeddedValkey) -> subprocess.Popen[bytes]:
    """Its process."""
    assert valkey._server is not None
    process: subprocess.Popen[bytes] = valkey._server._process
    return process


def answers(valkey: EmbeddedValkey) -> bool:
    """Whether it takes and gives."""
    with connect_redis(valkey.url) as client:
        client.set("key", b"value")
        return bool(client.get("key") == b"value")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_ends_is_started_again_where_it_was(valkey: EmbeddedValkey, number: signal.Signals) -> None:
    """However it ended, while clients were connected, and more than once; the log tells each end."""
    url = valkey.url
    for _ in range(2):
        with connect_redis(url) as client:
            client.ping()
            child(valkey).send_signal(number)
            child(valkey).wait()
            with capture_logs() as logs:
                assert valkey.revive() is True
        assert [record["event"] for record in logs] == ["embedded Valkey ended", "embedded Valkey started again"]
        assert logs[0]["code"] == (-9 if number is signal.SIGKILL else 0)
        assert valkey.url == url
        assert answers(valkey)
        assert valkey.revive() is False


def test_one_that_is_slow_to_answer_is_not_taken_for_dead(valkey: EmbeddedValkey) -> None:
    """A busy machine ends no Valkey."""
    before = child(valkey).pid
    os.kill(before, signal.SIGSTOP)
    try:
        assert valkey.revive() is False
    finally:
        os.kill(before, signal.SIGCONT)
    assert child(valkey).pid == before


def test_it_is_tried_again_until_it_starts(valkey: EmbeddedValkey) -> None:
    """Somebody has taken its port meanwhile: it waits for that port, which readers know, and goes to no other."""
    url = valkey.url
    child(valkey).kill()
    child(valkey).wait()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(url.rsplit(":", 1)[1].removesuffix("/0"))))
        squatter.listen()
        for _ in range(2):
            with capture_logs() as logs:
                assert valkey.revive() is True
            assert logs[-1]["event"] == "embedded Valkey does not start"
    assert valkey.revive() is True
    assert valkey.url == url
    assert answers(valkey)
