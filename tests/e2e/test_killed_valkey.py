"""The embedded Valkey dies under a service: it comes back with all that was in it, and nobody has to do anything."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from harness.metrics import scrape, value
from harness.programs import wait_until
from harness.service_process import ServiceProcess
from veilset._reader.reader import open_view
from veilset.errors import NotFound, Unavailable


def shows(url: str, sequence: int) -> bool:
    """Whether readers find that release."""
    try:
        return open_view(url, "s").header.sequence == sequence
    except (Unavailable, NotFound):  # away, or back and not yet filled
        return False


@pytest.mark.faults
def test_releases_come_back_after_a_killed_valkey(start_service: Callable[..., ServiceProcess]) -> None:
    """Twice, at the same address, long before a pass would be due; publishing goes on, and no child is left behind."""
    service = start_service("--metrics-port", "0", "--reconcile-seconds", "3600")
    parent = psutil.Process(service.pid)
    with service.connect() as connection:
        connection.create_set("s", size=1000, epsilon=1, delta=1e-9, adjacency="add-remove", budget_epsilon=9)
        connection.add("s", ["a", "b"])
        for sequence in (1, 2):
            connection.publish("s")
            assert shows(service.redis, sequence)
            (child,) = parent.children()
            child.kill()
            wait_until(lambda: shows(service.redis, sequence))  # noqa: B023 - called in this round only
            wait_until(lambda: value(scrape(service.metrics), "veilset_redis_up") == 1)
        assert connection.publish("s").state == "published"
    children = parent.children()
    assert len(children) == 1
    events = [record["event"] for record in service.log_records()]
    assert events.count("embedded Valkey ended") == events.count("embedded Valkey started again") == 2
    service.stop()
    assert not any(child.is_running() for child in children)
