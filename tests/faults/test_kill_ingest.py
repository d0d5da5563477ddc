"""SIGKILL at every step of an upload, of making and of deleting a set: what was acknowledged is there when it is back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from stricken import Stricken, stricken

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from veilset.errors import AlreadyExists, NotFound

STEPS = (
    ("ledger.open_upload", 1),
    ("runs.open_spool", 1),
    ("sync_file", 1),
    ("spool.append", 1),
    ("spool.append", 3),
    ("spool.write_mark", 2),
    ("spool.sync", 1),
    ("ledger.finish_upload", 1),
)
SHORT = (("spool.append", 2), ("spool.sync", 1), ("ledger.finish_upload", 1))
CREATION_STEPS = (("ledger.create_set", 1),)
DELETION_STEPS = (
    ("store.remove", 1),
    ("redis.command", 2),
    ("redis.command", 5),
    ("ledger.delete_set", 1),
    ("runs.remove_spool", 1),
    ("ledger.forget_leftovers", 1),
    ("artefacts.remove", 1),
)

_uploads = itertools.count(1)


def strike_and_resume(service: Stricken, step: str, when: str, call: int) -> None:
    """Kill it in an upload, start it again, resume from the last acknowledgement."""
    upload_id = f"upload-{next(_uploads)}"
    assert service.strike(step, when, lambda: service.upload("s", upload_id), call), (step, when, call)
    service.process.start()
    service.check_alive()
    service.upload("s", upload_id)
    service.check_alive()


def test_a_kill_while_receiving(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    """The short part of the matrix below."""
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for (step, call), when in itertools.product(SHORT, ("before", "after")):
            with trying("SIGKILL while receiving an upload"):
                strike_and_resume(service, step, when, call)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_at_every_step_of_an_upload(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Before and after each step, two rounds."""
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for _, (step, call), when in itertools.product(range(2), STEPS, ("before", "after")):
            with trying("SIGKILL while receiving an upload"):
                strike_and_resume(service, step, when, call)
        assert service.publish("s", "request").state == "published"


@pytest.mark.faults
def test_a_kill_while_making_a_set(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    """The set is there, whole, or it is not and can be made."""
    with stricken(tmp_path, start_redis) as service:
        for number, ((step, call), when) in enumerate(itertools.product(CREATION_STEPS, ("before", "after"))):
            with trying("SIGKILL while making a set"):
                assert service.strike(step, when, partial(service.create, f"s{number}", 1), call), (step, when, call)
                service.process.start()
                try:
                    service.create(f"s{number}", 1)
                except AlreadyExists:
                    assert (step, when) != ("ledger.create_set", "before")
                service.upload(f"s{number}", "u", 1)
                service.check_alive()


@pytest.mark.faults
def test_a_kill_while_deleting_a_set(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    """Killed in a deletion, the set is whole or gone; deleted and made again, it goes on from the same account."""
    with stricken(tmp_path, start_redis) as service:
        for number, ((step, call), when) in enumerate(itertools.product(DELETION_STEPS, ("before", "after"))):
            with trying("SIGKILL while deleting a set"):
                service.create("s")
                service.elements["s"], service.confirmed["s"] = {}, set()
                service.upload("s", f"upload-{number}")
                assert service.publish("s", f"request-{number}").sequence == number + 1
                assert service.strike(step, when, lambda: delete(service), call), (step, when, call)
                service.process.start()
                service.check_alive()
                try:
                    delete(service)
                except NotFound:
                    service.confirmed["s"].clear()
                charges = service.check_alive().charges
                assert len(charges) == number + 1, "a deletion gave budget back"
                assert all(row.state in ("expired", "lost") for row in charges)
                assert not service.redis.command("KEYS", "veilset:s:*")
                assert not list((service.state / "artefacts").iterdir())


def delete(service: Stricken) -> None:
    """Delete the set."""
    with service.process.connect() as connection:
        connection.delete_set("s")
