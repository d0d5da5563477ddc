"""Redis killed, emptied, hanging, full, read-only, evicting: the same bytes are back soon, and uploads never notice."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from ledger_copy import read_ledger
from redis import Redis
from stricken import create_small_set, wait_for

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.vectors import redis_content
from veilset._reader.reader import open_view
from veilset._service.service import Service
from veilset.errors import Unavailable

RECONCILE_SECONDS = 0.5
REPAIR_SECONDS = RECONCILE_SECONDS + 10
QUICK = (
    "--redis-timeout-seconds",
    "0.5",
    "--publish-wait-seconds",
    "0.5",
    "--reconcile-seconds",
    str(RECONCILE_SECONDS),
)
BITS = 20_000_000  # three chunks
MINUTE = 60.0


def create(service: Service) -> None:
    """A set of three chunks with two releases."""
    create_small_set(service, BITS)
    for request_id in ("1", "2"):
        assert service.publish("s", request_id=request_id).state == "published"


def killed(redis: RedisServer) -> Iterator[None]:
    """Gone, and back empty."""
    os.kill(redis.pid, signal.SIGKILL)
    redis.stop()
    yield
    redis.start()


def hanging(redis: RedisServer) -> Iterator[None]:
    """Stopped in mid-air."""
    os.kill(redis.pid, signal.SIGSTOP)
    yield
    os.kill(redis.pid, signal.SIGCONT)


def full(redis: RedisServer) -> Iterator[None]:
    """maxmemory reached, nothing may be evicted."""
    redis.command("CONFIG", "SET", "maxmemory", "1")
    yield
    redis.command("CONFIG", "SET", "maxmemory", "0")


def read_only(redis: RedisServer) -> Iterator[None]:
    """A replica of a server that is not there, after a failover; promoted again, it is empty."""
    redis.command("REPLICAOF", "127.0.0.1", "1")
    yield
    redis.command("REPLICAOF", "NO", "ONE")
    redis.command("FLUSHALL")


def cannot_save(redis: RedisServer) -> Iterator[None]:
    """MISCONF: it is told to save snapshots and cannot."""
    shutil.rmtree(redis.folder)
    redis.command("CONFIG", "SET", "save", "3600 1")
    redis.command("SET", "other", "1")
    redis.command("BGSAVE")
    assert wait_for(lambda: redis.command("INFO", "persistence")["rdb_last_bgsave_status"] == "err", 5.0)
    yield
    redis.command("CONFIG", "SET", "save", "")


def too_few_replicas(redis: RedisServer) -> Iterator[None]:
    """NOREPLICAS."""
    redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
    yield
    redis.command("CONFIG", "SET", "min-replicas-to-write", "0")


def loading(redis: RedisServer) -> Iterator[None]:
    """LOADING: restarted, it reads a dump that takes long."""
    redis.restart_loading()
    yield
    redis.end_loading()


def another_password(redis: RedisServer) -> Iterator[None]:
    """NOAUTH, for new connections and those that are there: an operator changed the password, and changes it back."""
    redis.command("CONFIG", "SET", "requirepass", "changed")
    with Redis(port=redis.port, password="changed") as client:  # noqa: S106 - a test's
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield
        client.config_set("requirepass", "")


def no_permission(redis: RedisServer) -> Iterator[None]:
    """NOPERM: an access rule was changed under the running service."""
    redis.command("ACL", "SETUSER", "default", "-set")
    yield
    redis.command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.parametrize(
    "outage",
    [
        killed,
        pytest.param(hanging, marks=pytest.mark.faults),
        pytest.param(full, marks=pytest.mark.faults),
        pytest.param(read_only, marks=pytest.mark.faults),
        pytest.param(cannot_save, marks=pytest.mark.faults),
        pytest.param(too_few_replicas, marks=pytest.mark.faults),
        pytest.param(no_permission, marks=pytest.mark.faults),
        pytest.param(another_password, marks=pytest.mark.faults),
        pytest.param(loading, marks=pytest.mark.faults),
    ],
    ids=lambda outage: outage.__name__.replace("_", " "),
)
def test_an_outage(
    start_service: Callable[..., ServiceProcess],
    start_redis: Callable[..., RedisServer],
    outage: Callable[[RedisServer], Iterator[None]],
    trying: Trying,
) -> None:
    """The same bytes are back soon after it; a release asked for meanwhile is refused and charges nothing; uploads go on."""
    redis = start_redis()
    process = start_service("--redis", redis.url, *QUICK)
    with trying(f"Redis {outage.__name__.replace('_', ' ')}"), process.connect() as service:
        create(service)
        before = redis_content(redis.url)
        with contextmanager(outage)(redis):
            with pytest.raises(Unavailable):
                service.publish("s", request_id="3")
            for number in range(3):
                assert service.add("s", [f"{number}-{element}" for element in range(1000)]).elements == 1000
            with pytest.raises(Unavailable):
                service.publish("s", request_id="3")
            assert service.budget("s").charges == 2
        assert wait_for(lambda: before.items() <= redis_content(redis.url).items(), REPAIR_SECONDS)
        assert service.publish("s", request_id="3").sequence == 3
        assert wait_for(lambda: read_ledger(process.state).charges[-1].state == "published", REPAIR_SECONDS)
        assert service.budget("s").charges == 3


@pytest.mark.faults
@pytest.mark.parametrize("outage", [killed, hanging], ids=["killed", "hanging"])
def test_an_outage_of_a_minute(
    start_service: Callable[..., ServiceProcess],
    start_redis: Callable[..., RedisServer],
    outage: Callable[[RedisServer], Iterator[None]],
    trying: Trying,
) -> None:
    """Long enough for every pause between tries to be the longest: the same bytes are back within ten seconds, with the
    time-outs and the period that a service has without being told."""
    redis = start_redis()
    process = start_service("--redis", redis.url)
    with trying(f"Redis {outage.__name__} for a minute"), process.connect() as service:
        create(service)
        before = redis_content(redis.url)
        with contextmanager(outage)(redis):
            began, uploads = time.monotonic(), 0
            while time.monotonic() - began < MINUTE:
                assert service.add("s", [f"{uploads}-{element}" for element in range(100)]).elements == 100
                uploads += 1
                time.sleep(1.0)
        assert wait_for(lambda: before.items() <= redis_content(redis.url).items(), 10.0)
        assert service.budget("s").charges == 2
        assert service.publish("s", request_id="3").state == "published"
        print(f"\n{uploads} uploads during {MINUTE:.0f} s without Redis ({outage.__name__})")


@pytest.mark.faults
def test_a_flush_between_charge_and_delivery(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """And one key lost, one cut short, the pointer moved back or turned into nonsense: each is found and mended."""
    redis = start_redis()
    process = start_service("--redis", redis.url, *QUICK)
    with process.connect() as service:
        create(service)
        good = redis_content(redis.url)
        for damage in (
            ("FLUSHALL",),
            ("DEL", "veilset:s:latest"),
            ("DEL", "veilset:s:2:bits:1"),
            ("DEL", "veilset:s:1:manifest"),
            ("SETRANGE", "veilset:s:2:bits:2", str(1 << 20), "x"),
            ("SET", "veilset:s:2:bits:0", "short"),
            ("SETRANGE", "veilset:s:2:bits:1", "1000", "tampered"),
            ("SETRANGE", "veilset:s:1:bits:0", "0", "tampered"),
            ("SETRANGE", "veilset:s:1:manifest", "20", "tampered"),
            ("SET", "veilset:s:1:manifest", "forged"),
            ("SET", "veilset:s:latest", "1"),
            ("SET", "veilset:s:latest", "nonsense"),
            ("SET", "veilset:s:latest", "-3"),
        ):
            with trying(f"Redis loses or changes keys ({damage[0]})"):
                redis.command(*damage)
                assert wait_for(lambda: redis_content(redis.url) == good, REPAIR_SECONDS), damage
        redis.command("FLUSHALL")
        assert service.reconcile()[0] == 2
        assert redis_content(redis.url) == good
        assert service.budget("s").charges == 2


@pytest.mark.faults
def test_eviction_under_memory_pressure(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """An allkeys-lru Redis throws releases out whenever others use it: while they do a reader may miss one, never get
    a wrong one, and once the pressure goes all is back."""
    redis = start_redis(arguments=("--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru"))
    process = start_service("--redis", redis.url, *QUICK)
    with trying("allkeys-lru Redis under memory pressure"), process.connect() as service:
        create(service)
        good = redis_content(redis.url)
        evicted = 0
        with redis.client() as client:
            for round_number in range(40):
                for number in range(8):
                    client.set(f"others:{round_number}:{number}", bytes(1 << 20))
                evicted += len(good) - sum(client.exists(key) for key in good)
        assert evicted
        redis.command("CONFIG", "SET", "maxmemory", "0")
        assert wait_for(lambda: good.items() <= redis_content(redis.url).items(), REPAIR_SECONDS)
        assert open_view(redis.url, "s").header.sequence == 2
        assert service.budget("s").charges == 2
