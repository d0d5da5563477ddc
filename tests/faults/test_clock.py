"""A wall clock ten years off, at a start or jumping under the running service: budgets, releases and uploads do not care."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_copy import read_ledger

from harness.fault_tally import Trying
from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from veilset.errors import BudgetExceeded

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
PERIODS = 6
RECONCILE_SECONDS = 0.2


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the wall clock of processes that start from now on, and of those that run; their monotonic clock stays true."""
    found = [path for pattern in LIBRARIES for path in Path("/").glob(pattern[1:])]
    if not found:
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    offset = tmp_path / "offset"

    def set_to(text: str) -> None:
        temporary = offset.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.rename(offset)

    set_to("+0")
    monkeypatch.setenv("LD_PRELOAD", str(found[0]))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("DONT_FAKE_MONOTONIC", "1")
    return set_to


@pytest.mark.faults
def test_a_clock_that_jumps(
    start_redis: Callable[..., RedisServer],
    tmp_path: Path,
    clock: Callable[[str], None],
    trying: Trying,
) -> None:
    """Ten years ahead and back while running, and over restarts. (Redis itself keeps the true time.)"""
    process = ServiceProcess(
        tmp_path / "state",
        ("--redis", real_time_redis(start_redis).url, "--reconcile-seconds", str(RECONCILE_SECONDS)),
    )
    try:
        process.start()
        with process.connect() as service, process.stub() as stub:
            service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=4)
            service.add("s", ["a"])
            with RawUpload(stub, open_upload("s", "u"), raw_batch(1, [b"b"])) as stream:
                stream.opened()
                assert stream.acknowledged() == (1, 1)
                for number, jump in enumerate(("+3650d", "-3650d", "+0")):
                    with trying("clock jumps under the running service"):
                        clock(jump)
                        time.sleep(PERIODS * RECONCILE_SECONDS)
                        assert service.publish("s", request_id=f"{number}").state == "published"
                        assert service.budget("s").charges == number + 1
                stream.send(raw_batch(2, [b"c"]), finish(2))
                assert stream.acknowledged() == (2, 2)
                assert stream.finished() == 2
            with RawUpload(stub, open_upload("s", "kept"), raw_batch(1, [b"d"])) as stream:
                stream.opened()
                assert stream.acknowledged() == (1, 1)
        created = [release_year(process, number) for number in (1, 2)]
        assert created[0] - created[1] in (19, 20)  # the clock did jump
        for jump in ("-3650d", "+3650d", "+0"):
            with trying("clock jumps between two starts"):
                process.kill()
                clock(jump)
                process.start()
                time.sleep(PERIODS * RECONCILE_SECONDS)
                with process.connect() as service:
                    assert service.budget("s").charges == 3
                    assert service.publish("s", request_id="0").sequence == 1
                with process.stub() as stub, RawUpload(stub, open_upload("s", "kept")) as stream:
                    assert stream.opened().elements == 1, "an open upload was dropped, as if it were ten years old"
        with process.stub() as stub, RawUpload(stub, open_upload("s", "kept"), finish(1)) as stream:
            stream.opened()
            assert stream.finished() == 1
        with process.connect() as service:
            assert service.publish("s", request_id="last").sequence == 4
            with pytest.raises(BudgetExceeded):
                service.publish("s", request_id="more")
        assert len(read_ledger(process.state).charges) == 4
        process.stop()
    finally:
        process.end()


def real_time_redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A Redis that does not load the library: its expiry is not what is tried here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LD_PRELOAD")
        return start_redis()


def release_year(process: ServiceProcess, sequence: int) -> int:
    """The year that a release says it was made in."""
    with process.connect() as service:
        return time.gmtime(service.get_release("s", sequence).header.created_at_us / 1e6).tm_year
