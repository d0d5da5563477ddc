"""Faults at single system calls: SIGKILL at each, errors from fsync, and the order in which a publish goes to disk and out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc
import pytest
from ledger_copy import read_ledger
from stricken import Stricken, stricken, wait_for

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.strace import Call, read_calls, require_strace, traced
from veilset.errors import VeilsetError

KILLED_AT = {
    "fsync": 8,
    "fdatasync": 10,
    "rename": 3,
    "ftruncate": 3,
    "unlink": 3,
    "sendto": 14,
    "pwrite64": 12,
    "write": 6,
    "fallocate": 2,
}
KILLED_UPLOAD_AT = {
    "fsync": 7,
    "fdatasync": 6,
    "rename": 3,
    "pwrite64": 6,
    "ftruncate": 3,
}

_numbers = itertools.count(1)


def fill(service: Stricken) -> None:
    """A set with an upload and two releases."""
    service.create("s")
    service.upload("s", "u")
    for _ in range(2):
        assert service.publish("s", f"r{next(_numbers)}").state == "published"


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", KILLED_AT)
def test_a_kill_at_a_system_call_of_a_publish(
    tmp_path: Path, start_redis: Callable[..., RedisServer], name: str, trying: Trying
) -> None:
    """Each call of each kind on its own, up to a number or until the publish has no more."""
    require_strace()
    with stricken(tmp_path, start_redis) as service:
        fill(service)
        for when in range(1, KILLED_AT[name] + 1):
            request_id = f"r{next(_numbers)}"
            with traced(service.process.pid, name, tmp_path / "log", f"signal=KILL:when={when}"):
                fell = service.falls(partial(service.publish, "s", request_id))
            before = [row for row in read_ledger(service.state).charges if row.request_id == request_id]
            service.process.start()
            if not fell:
                assert when > 1
                break
            with trying("SIGKILL at a system call of a publish"):
                service.check_alive()
                release = service.publish("s", request_id)
                assert release.state == "published"
                after = [row for row in service.check_alive().charges if row.request_id == request_id]
                assert len(after) == 1
                assert not before or before[0].manifest == after[0].manifest


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", KILLED_UPLOAD_AT)
def test_a_kill_at_a_system_call_of_an_upload(
    tmp_path: Path, start_redis: Callable[..., RedisServer], name: str, trying: Trying
) -> None:
    """The same for an upload."""
    require_strace()
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for when in range(1, KILLED_UPLOAD_AT[name] + 1):
            upload_id = f"u{next(_numbers)}"
            with traced(service.process.pid, name, tmp_path / "log", f"signal=KILL:when={when}"):
                fell = service.falls(partial(service.upload, "s", upload_id))
            service.process.start()
            if not fell:
                assert when > 1
                break
            with trying("SIGKILL at a system call of an upload"):
                service.check_alive()
                service.upload("s", upload_id)
                service.check_alive()


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
def test_a_failing_sync_ends_the_process(
    tmp_path: Path, start_redis: Callable[..., RedisServer], name: str, error: str, trying: Trying
) -> None:
    """With status 74 and a line that says why; whatever it was about to acknowledge is done or not done after a restart,
    and done once in the end. (SQLite passes over a failed sync of a folder in silence; then nothing was at stake.)"""
    require_strace()
    ended = 0
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for when in range(1, 6):
            upload_id, request_id = f"u{next(_numbers)}", f"r{next(_numbers)}"
            with trying(f"{name} fails with {error}"):
                with traced(service.process.pid, name, tmp_path / "log", f"error={error}:when={when}"):
                    try:
                        service.upload("s", upload_id)
                        service.publish("s", request_id)
                    except (VeilsetError, grpc.RpcError):
                        assert wait_for(lambda: not service.process.runs, 5.0)
                if not service.process.runs:
                    ended += 1
                    assert service.process.wait() == os.EX_IOERR
                    last = service.process.log_path.read_text().splitlines()[-1]
                    assert last.startswith("veilset: fatal: ")
                    service.check_dead()
                    service.process.start()
                service.check_alive()
                service.upload("s", upload_id)
                assert service.publish("s", request_id).state == "published"
                assert sum(row.request_id == request_id for row in service.check_alive().charges) == 1
        assert ended >= 1


@pytest.mark.faults
def test_nothing_leaves_before_the_charge_is_on_disk(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """In the kernel's own order: artefact, then the commit of the charge down to the end of its journal, then the release to
    Redis, then the pointer, then the mark."""
    require_strace()
    log = tmp_path / "log"
    with stricken(tmp_path, start_redis) as service, trying("order of syncs and sends of a publish"):
        service.create("s")
        service.upload("s", "u")
        with traced(service.process.pid, "fsync,fdatasync,rename,ftruncate,sendto", log):
            assert service.publish("s", "r").state == "published"
        calls = read_calls(log)
        sent = [index for index, call in enumerate(calls) if call.name == "sendto" and "veilset:s:1:" in call.arguments]
        before, behind = calls[: sent[0]], calls[sent[0] :]
        assert_in_order(
            before,
            [
                ("fsync", "1-1.noisy.tmp"),
                ("rename", "1-1.noisy"),
                ("fsync", "/artefacts>"),
                ("fdatasync", "ledger.db-journal>"),
                ("fdatasync", "ledger.db>"),
                ("ftruncate", "ledger.db-journal>, 0"),
                ("fdatasync", "ledger.db-journal>"),
            ],
        )
        pointer = next(index for index, call in enumerate(behind) if "veilset:s:latest" in call.arguments)
        assert not [call for call in behind[:pointer] if "ledger.db" in call.arguments]
        assert [call for call in behind[pointer:] if "ledger.db" in call.arguments]


def assert_in_order(calls: Sequence[Call], wanted: Sequence[tuple[str, str]]) -> None:
    """Each is there, behind the one before."""
    rest = iter(calls)
    for name, text in wanted:
        assert any(call.name == name and text in call.arguments for call in rest), (name, text, list(calls))
