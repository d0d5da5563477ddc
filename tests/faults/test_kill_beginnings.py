"""SIGKILL where there is no publish: while a state folder is made, and while an operator confirms a loss or raises a budget."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from ledger_copy import read_ledger
from stricken import Stricken

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from veilset.errors import FailedPrecondition, VeilsetError

MOST_SYNCS = 40


@pytest.mark.faults
def test_a_kill_while_a_state_folder_is_made(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """At each of our own syncs; the next start completes the folder, and from then on the key stays."""
    redis = start_redis()
    for call in range(1, MOST_SYNCS):
        folder = tmp_path / f"{call}"
        folder.mkdir()
        service = Stricken(folder, redis)
        try:
            service.arm("sync_file", "before", call)
            with suppress(AssertionError):
                service.process.start()
            service.snare.unlink()
            if service.process.started:
                break  # it has no more
            with trying("SIGKILL while making a state folder"):
                service.process.start()
                key = service.process.public_key
                service.process.kill()
                service.process.start()
                assert service.process.public_key == key
        finally:
            service.process.end()
    assert 5 < call < MOST_SYNCS - 1


@pytest.mark.faults
def test_a_kill_while_a_loss_is_confirmed(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """It is charged once or not at all; where it is not, nothing can be published still."""
    service = Stricken(tmp_path, start_redis())
    steps = ("ledger.charge_lost_releases", "anchor.write", "sync_file")
    try:
        service.process.start()
        service.create("s")
        service.upload("s", "u")
        for number, (step, when) in enumerate(itertools.product(steps, ("before", "after"))):
            service.publish("s", f"kept {number}")
            service.process.stop()
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(service.state, tmp_path / "copy")
            service.process.start()
            lost = service.publish("s", f"lost {number}").sequence
            service.process.kill()
            shutil.rmtree(service.state)
            shutil.copytree(tmp_path / "copy", service.state)
            service.process.start()
            charges = len(read_ledger(service.state).charges)
            with trying("SIGKILL while a loss is confirmed"):
                service.arm(step, when)
                with suppress(VeilsetError):
                    confirm(service)
                service.process.kill()
                service.snare.unlink()
                assert len(read_ledger(service.state).charges) in (charges, charges + 1)
                service.process.start()
                with suppress(FailedPrecondition):  # confirmed by then
                    confirm(service)
                found = read_ledger(service.state).charges
                assert len(found) == charges + 1
                assert (found[-1].sequence, found[-1].request_id) == (lost, None)
                assert service.publish("s", f"next {number}").sequence == lost + 1
    finally:
        service.process.end()


def confirm(service: Stricken) -> None:
    """Confirm one lost release."""
    with service.process.connect() as connection:
        connection.confirm_loss("s", epsilon=1, delta=1e-9, reason="disk replaced")


@pytest.mark.faults
def test_a_kill_while_a_budget_is_raised(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """The old total or the new one, never less; the raise can be repeated."""
    service = Stricken(tmp_path, start_redis())
    try:
        service.process.start()
        service.create("s", releases=1)
        for number, when in enumerate(("before", "after"), start=2):
            with trying("SIGKILL while a budget is raised"):
                assert service.strike("ledger.raise_budget", when, partial(raise_to, service, number))
                service.process.start()
                (total, _), *_ = read_ledger(service.state).accounts.values()
                assert total == (number - (when == "before")) * 10**9
                raise_to(service, number)
                service.check_alive()
    finally:
        service.process.end()


def raise_to(service: Stricken, epsilon: int) -> None:
    """Raise the set's budget."""
    with service.process.connect() as connection:
        connection.raise_budget("s", epsilon=epsilon, reason="more")
