"""A service whose Redis hangs stops in time all the same, with 0, and the next start goes on with what was charged."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

import veilset
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from veilset.errors import Unavailable


@pytest.mark.faults
def test_a_hanging_redis_does_not_keep_a_service_from_stopping(
    start_redis: Callable[..., RedisServer], start_service: Callable[..., ServiceProcess]
) -> None:
    """Its threads would wait for ten minutes."""
    redis = start_redis()
    service = start_service("--redis", redis.url, "--redis-timeout-seconds", "600", "--drain-seconds", "1")
    with service.connect() as connection:
        connection.create_set("set", size=100, epsilon=1, adjacency="add-remove")
        connection.add("set", ["a"])
        connection.publish("set", request_id="r")
    os.kill(redis.pid, signal.SIGSTOP)
    with veilset.connect(service.address, timeout_seconds=2.0) as connection, pytest.raises(Unavailable):
        connection.reconcile()
    service.terminate()
    assert service.wait() == 0
    assert service.log_records()[-1]["event"].startswith("stopped")
    os.kill(redis.pid, signal.SIGCONT)
    service.start()
    with service.connect() as connection:
        assert connection.publish("set", request_id="r").state == "published"
        assert connection.budget("set").charges == 1
