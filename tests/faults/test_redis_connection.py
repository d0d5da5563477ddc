"""A bad line to Redis: publish says PENDING or that nothing is charged, and the same bytes arrive in the end, for one charge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ledger_copy import read_ledger
from stricken import create_small_set, wait_for

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.tcp_proxy import Mode, TcpProxy
from harness.vectors import redis_content
from veilset._reader.reader import open_view
from veilset.errors import Unavailable

QUICK = ("--redis-timeout-seconds", "0.5", "--publish-wait-seconds", "1", "--reconcile-seconds", "0.5")
BITS = 20_000_000  # three chunks
PUBLISHERS = 64
UPLOADS_SECONDS = 10.0  # if they had to wait for threads that wait for Redis it would be minutes


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """The Redis behind the proxy."""
    return start_redis()


@pytest.fixture
def proxy(redis: RedisServer) -> Iterator[TcpProxy]:
    """The line to it."""
    with TcpProxy(redis.port) as found:
        yield found


@pytest.fixture
def process(start_service: Callable[..., ServiceProcess], proxy: TcpProxy) -> ServiceProcess:
    """A service that reaches Redis through the proxy, and gives up on a command after half a second."""
    return start_service("--redis", proxy.url, *QUICK)


def states(process: ServiceProcess) -> dict[str | None, str | None]:
    """Request id → state of all that is charged."""
    return {row.request_id: row.state for row in read_ledger(process.state).charges}


SHORT = (Mode.CUT, Mode.DROP_REPLIES)


@pytest.mark.parametrize(
    "mode",
    [*SHORT, *(pytest.param(mode, marks=pytest.mark.faults) for mode in Mode if mode not in (*SHORT, Mode.PASS))],
)
def test_a_publish_over_a_bad_line(
    process: ServiceProcess, proxy: TcpProxy, redis: RedisServer, mode: Mode, trying: Trying
) -> None:
    """Whether the line is bad before the charge or goes bad behind it."""
    with trying(f"line to Redis: {mode}"), process.connect() as service:
        create_small_set(service, BITS, 3)
        proxy.mode = mode
        try:
            early = service.publish("s", request_id="early").state
        except Unavailable:
            early = "nothing"
            assert "early" not in states(process)
            assert not redis_content(redis.url)
        assert early in ("pending", "published" if mode is Mode.DELAY else "nothing")
        if early == "pending":
            assert states(process)["early"] == "pending"
        proxy.mode = Mode.PASS
        release = service.publish("s", request_id="early")
        assert wait_for(lambda: states(process) == {"early": "published"}, 10.0)
        assert service.publish("s", request_id="early").sequence == release.sequence == 1
        assert service.budget("s").charges == 1
        assert open_view(redis.url, "s").header.sequence == 1


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_hundred_forced_retries_show_one_payload(
    process: ServiceProcess, proxy: TcpProxy, redis: RedisServer, trying: Trying
) -> None:
    """Each release is charged over a good line, which then fails in every way while it is sent and sent again."""
    bad = (Mode.CUT, Mode.DROP_REPLIES, Mode.REFUSE, Mode.BLACK_HOLE)
    with process.connect() as service:
        create_small_set(service, BITS, 10)
        retries = 0
        for number in range(1, 11):
            seen: set[tuple[str, bytes]] = set()
            with trying("ten forced retries of one release"):
                proxy.mode = Mode.PASS
                charged = service.publish("s", request_id=f"{number}", wait=False)
                for step in range(10):
                    proxy.mode = bad[(number + step) % len(bad)]
                    retries += 1
                    try:
                        again = service.publish("s", request_id=f"{number}", wait=step % 3 == 0, timeout_seconds=20)
                        assert again.sequence == charged.sequence == number
                    except Unavailable:
                        pass
                    proxy.mode = Mode.PASS
                    redis.command("FLUSHALL")
                    assert service.publish("s", request_id=f"{number}").header == charged.header
                    service.reconcile("s")
                    content = redis_content(redis.url)
                    assert content["veilset:s:latest"] == str(number).encode()
                    seen |= {item for item in content.items() if item[0].startswith(f"veilset:s:{number}:")}
                assert len(seen) == 4  # manifest and three chunks
        assert retries == 100
        assert service.budget("s").charges == 10


@pytest.mark.faults
@pytest.mark.parametrize("mode", [Mode.BLACK_HOLE, Mode.CUT])
def test_uploads_do_not_notice_a_bad_line(
    process: ServiceProcess, proxy: TcpProxy, mode: Mode, tmp_path: Path, trying: Trying
) -> None:
    """Not even with more publishes waiting for Redis, all the time, than there are threads."""
    with trying(f"uploads during a line to Redis: {mode}"), process.connect() as service:
        create_small_set(service, BITS, PUBLISHERS)
        proxy.mode = mode
        enough = threading.Event()
        publishing = [threading.Thread(target=publish_until, args=(process, enough, n)) for n in range(PUBLISHERS)]
        for thread in publishing:
            thread.start()
        try:
            started = time.monotonic()
            for number in range(5):
                assert service.add("s", [f"{number}-{element}" for element in range(1000)]).elements == 1000
            assert time.monotonic() - started < UPLOADS_SECONDS
        finally:
            proxy.mode = Mode.PASS
            enough.set()
            for thread in publishing:
                thread.join()
        assert wait_for(lambda: "pending" not in states(process).values(), 10.0)


def publish_until(process: ServiceProcess, enough: threading.Event, number: int) -> None:
    """Ask for one release again and again."""
    with process.connect() as service:
        while not enough.is_set():
            with suppress(Unavailable):
                service.publish("s", request_id=f"background-{number}")
            enough.wait(0.05)
