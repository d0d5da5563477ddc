"""A damaged file of the state folder: a call, a scrape or a publish that needs what is in it names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.metrics import scrape, value
from harness.programs import Finished, wait_until
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from veilset.errors import StateCorrupted


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A Redis to lose things in."""
    return start_redis()


@pytest.fixture
def measured(start_service: Callable[..., ServiceProcess], redis: RedisServer) -> ServiceProcess:
    """A service with metrics and a set ``s`` that may be published nine times."""
    service = start_service("--metrics-port", "0", "--redis", redis.url, "--reconcile-seconds", "0.2")
    with service.connect() as connection:
        connection.create_set("s", size=1000, epsilon=1, delta=1e-9, adjacency="add-remove", budget_epsilon=9)
        connection.add("s", ["a", "b"])
    return service


def damage(service: ServiceProcess) -> None:
    """Change a byte of the newest artefact."""
    newest: Path = max((service.state / "artefacts").iterdir())
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)


def test_a_published_release_that_cannot_be_restored(
    measured: ServiceProcess, redis: RedisServer, veilset_here: Callable[..., Finished]
) -> None:
    """A gauge while it is so; ``reconcile`` names it and fails, the library returns it; the next publish ends it."""
    with measured.connect() as connection:
        connection.publish("s")
        damage(measured)
        redis.command("DEL", "veilset:s:1:bits:0")
        wait_until(lambda: value(scrape(measured.metrics), "veilset_releases_damaged") == 1)
        assert connection.reconcile() == (1, 0, (("s", 1),))
        settings = {"VEILSET_SERVER": measured.address}
        told = veilset_here("reconcile", "--json", settings=settings)
        assert told.code == 1
        assert told.out == '{"checked": 1, "restored_keys": 0, "unrestorable": [{"set": "s", "sequence": 1}]}\n'
        assert told.err.startswith("veilset: s/1 cannot be restored")
        (refused,) = {record["file"] for record in measured.log_records() if record["event"] == "cannot restore"}
        assert refused == "artefacts/1-1.noisy"
        for request_id in ("2", "3"):
            connection.publish("s", request_id=request_id)
        wait_until(lambda: value(scrape(measured.metrics), "veilset_releases_damaged") == 0)
        assert veilset_here("reconcile", settings=settings).code == 0


@pytest.mark.faults
def test_a_pending_release_that_is_lost(
    measured: ServiceProcess, redis: RedisServer, veilset_here: Callable[..., Finished]
) -> None:
    """Counted from 0 on, so that an alert sees the first; a publish that repeats it says so and fails."""
    assert ("veilset_releases_lost_total", ()) in scrape(measured.metrics)
    redis.command("ACL", "SETUSER", "default", "resetkeys", "%R~*", "~veilset:s:0:*", "~veilset:s:latest")
    settings = {"VEILSET_SERVER": measured.address}
    publish = ("publish", "s", "--request-id", "r1", "--no-wait")
    pending = veilset_here(*publish, settings=settings)
    assert (pending.code, pending.out.splitlines()[0]) == (0, "s/1 pending")
    damage(measured)
    redis.command("ACL", "SETUSER", "default", "allkeys")
    wait_until(lambda: value(scrape(measured.metrics), "veilset_releases_lost_total") == 1)
    repeated = veilset_here(*publish, settings=settings)
    assert (repeated.code, repeated.out.splitlines()[0]) == (1, "s/1 lost")
    assert repeated.err.startswith("veilset: s/1 is lost")
    (lost,) = [record for record in measured.log_records() if record["event"] == "release lost"]
    assert lost["file"] == "artefacts/1-1.noisy"
    again = veilset_here("publish", "s", "--request-id", "r2", settings=settings)
    assert (again.code, again.out.splitlines()[0]) == (0, "s/2 published")


def test_a_set_that_refuses_from_the_start_on(redis: RedisServer, start_service: Callable[..., ServiceProcess]) -> None:
    """One of its runs is cut: a gauge, until the set is deleted."""
    process = start_service("--metrics-port", "0", "--redis", redis.url)
    with process.connect() as connection:
        for name in ("s", "other"):
            connection.create_set(name, size=1000, epsilon=1, delta=1e-9, adjacency="add-remove")
            connection.add(name, [f"element {number}" for number in range(5000)])  # more than stay in the ledger
    process.kill()
    (path,) = (process.state / "spools").glob("1-*")
    path.write_bytes(path.read_bytes()[:-1])
    process.start()
    assert value(scrape(process.metrics), "veilset_sets_refusing") == 1
    with process.connect() as connection:
        with pytest.raises(StateCorrupted, match=path.name):
            connection.publish("s")
        connection.delete_set("s")
        assert connection.publish("other").state == "published"
    assert value(scrape(process.metrics), "veilset_sets_refusing") == 0
