"""SIGKILL at every step of a publish. Each time: restart on the same state, and nothing is overspent, lost or told twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_copy import read_ledger
from stricken import Stricken, stricken, wait_for

import veilset
from harness.fault_tally import Trying
from harness.patience import SECONDS
from harness.redis_server import RedisServer
from veilset._service.records import Release
from veilset.core.elements.hashing import digests

STEPS = (
    ("store.probe", 1),
    ("artefacts.write", 1),
    ("artefact.write", 1),
    ("artefact.write", 3),
    ("sync_file", 1),
    ("sync_file", 2),
    ("anchor.sync", 1),
    ("ledger.charge_release", 1),
    ("anchor.write", 1),
    ("anchor.write", 2),
    ("store.upload", 1),
    ("redis.command", 2),
    ("redis.command", 5),
    ("store.move_pointer", 1),
    ("redis.transaction", 1),
    ("ledger.mark_release", 1),
    ("store.expire", 1),
    ("redis.command", 9),
    ("ledger.mark_release", 2),
    ("artefacts.remove", 1),
)
SHORT = (
    ("ledger.charge_release", 1),
    ("store.move_pointer", 1),
)
INCREMENT_STEPS = (
    ("store.probe", 1),
    ("ledger.new_run_file", 1),
    ("sync_file", 1),
    ("artefacts.write", 1),
    ("artefact.write", 1),
    ("ledger.charge_release", 1),
    ("anchor.write", 1),
    ("store.upload", 1),
    ("redis.command", 2),
    ("store.move_pointer", 1),
    ("redis.transaction", 1),
    ("ledger.mark_release", 1),
)
RECOVERY_STEPS = (
    ("anchor.write", 1),
    ("store.upload", 1),
    ("redis.command", 3),
    ("store.move_pointer", 1),
    ("redis.transaction", 1),
    ("ledger.mark_release", 1),
    ("ledger.mark_release", 2),
)

_requests = itertools.count(1)


def strike_and_repeat(service: Stricken, step: str, when: str, call: int) -> bool:
    """Kill it in a publish, start it again, repeat the publish: one charge, one release, the same bytes."""
    request_id = f"request-{next(_requests)}"
    fell = service.strike(step, when, lambda: service.publish("s", request_id), call)
    before = [row for row in read_ledger(service.state).charges if row.request_id == request_id]
    service.process.start()
    service.check_alive()
    release = service.publish("s", request_id)
    assert release.state == "published"
    after = [row for row in service.check_alive().charges if row.request_id == request_id]
    assert len(after) == 1
    assert release.sequence == after[0].sequence
    if before:
        assert (before[0].sequence, before[0].manifest) == (after[0].sequence, after[0].manifest)
    assert wait_for(lambda: published(service) == 2, 3.0), "an old release never went"
    return fell


def published(service: Stricken) -> int:
    """How many releases readers can fetch, as the ledger has it."""
    return sum(row.state == "published" for row in read_ledger(service.state).charges)


def fill(service: Stricken, **encoding: Any) -> None:
    """A set with an upload and two releases, so that the next one retires the first."""
    service.create("s", **encoding)
    service.upload("s", "u")
    for _ in range(2):
        assert service.publish("s", f"request-{next(_requests)}").state == "published"


def test_a_kill_while_publishing(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    """The short part of the matrix below."""
    with stricken(tmp_path, start_redis) as service:
        fill(service)
        for (step, call), when in itertools.product(SHORT, ("before", "after")):
            with trying("SIGKILL while publishing"):
                assert strike_and_repeat(service, step, when, call), (step, when, call)


def test_a_kill_between_coins_and_charge(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Of a linear release of three chunks: the artefact was never seen and is drawn anew, or it is charged and is the release."""
    with stricken(tmp_path, start_redis) as service:
        fill(service, encoding="linear", columns=4_194_304, planes=5)
        for step, when in (
            ("artefact.write", "after"),
            ("artefacts.write", "after"),
            ("ledger.charge_release", "after"),
        ):
            with trying("SIGKILL while publishing"):
                assert strike_and_repeat(service, step, when, 1), (step, when)


def test_a_kill_between_count_and_release(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """The count that was charged is the one that the repeated request goes by; none is charged twice."""
    with stricken(tmp_path, start_redis) as service:
        with service.process.connect() as client:
            client.create_set("s", epsilon=1, adjacency="add-remove", encoding="linear", budget_epsilon=20)
        service.upload("s", "u")
        for step, when in (("charge_count", "before"), ("charge_count", "after"), ("charge_release", "before")):
            request_id = f"request-{next(_requests)}"
            with trying("SIGKILL while publishing"):
                assert service.strike(f"ledger.{step}", when, partial(service.publish, "s", request_id))
            before = read_ledger(service.state).charges
            service.process.start()
            release = service.publish("s", request_id)
            assert service.publish("s", request_id).sequence == release.sequence
            after = service.check_alive().charges
            assert len(after) - len(before) == (2 if (step, when) == ("charge_count", "before") else 1)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_at_every_step_of_a_publish(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Before and after each step, two rounds."""
    with stricken(tmp_path, start_redis) as service:
        fill(service)
        for _, (step, call), when in itertools.product(range(2), STEPS, ("before", "after")):
            with trying("SIGKILL while publishing"):
                assert strike_and_repeat(service, step, when, call), (step, when, call)


def strike_increments(
    tmp_path: Path,
    start_redis: Callable[..., RedisServer],
    trying: Trying,
    steps: Sequence[tuple[str, int]],
    base_steps: Sequence[tuple[str, int]] = (),
) -> None:
    """Kill it in an increment at each step, start it again, repeat the publish: every element is in exactly one release.

    At this ε a vector shows what it holds: an element is dropped with probability e^-40, and mistaken with 2^-32.
    """
    with stricken(tmp_path, start_redis) as service:
        with service.process.connect() as client:
            client.create_set(
                "s",
                size=500,
                epsilon=40,
                adjacency="add-remove",
                encoding="linear",
                increments=200,
                increment_capacity=50,
                budget_epsilon=2000,
            )
            client.add("s", added := [f"base-{number}" for number in range(20)])
        for (step, call), when in itertools.product(base_steps, ("before", "after")):
            request_id = f"base-{next(_requests)}"
            with trying("SIGKILL while publishing a base of increments"):
                assert service.strike(step, when, partial(service.publish, "s", request_id), call), (step, when, call)
                service.process.start()
                assert service.publish("s", request_id).state == "published"
            assert veilset.open(service.redis.url, "s").contains_many(added).all()
        bases = service.publish("s", "base").sequence
        for number, ((step, call), when) in enumerate(itertools.product(steps, ("before", "after"))):
            with service.process.connect() as client:
                client.add("s", new := [f"{number}-{index}" for index in range(5)])
                client.remove("s", added[:1])
                client.add("s", added[:1])
            added += new
            request_id = f"increment-{number}"

            def publish(request_id: str = request_id) -> Release:
                with service.process.connect() as client:
                    return client.publish("s", request_id=request_id, increment=True, timeout_seconds=SECONDS)

            with trying("SIGKILL while publishing an increment"):
                assert service.strike(step, when, publish, call), (step, when, call)
                service.process.start()
                assert publish().state == "published"
            parts = veilset.open(service.redis.url, "s").parts
            assert len(parts) == number + 2
            hashing = parts[0].header.hashing
            hashed = digests([element.encode() for element in added], hashing.scheme, hashing.seed)
            found = [part.header.encoding.read(part.main, hashed) for part in parts]
            assert (np.sum(found, axis=0) == 1).all(), (step, when, call)
        assert read_ledger(service.state).charges[-1].sequence == 2 * len(steps) + bases


def test_a_kill_in_an_increment(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    strike_increments(tmp_path, start_redis, trying, [("ledger.charge_release", 1)])


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_at_every_step_of_an_increment(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    strike_increments(tmp_path, start_redis, trying, INCREMENT_STEPS, INCREMENT_STEPS)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_while_recovering_a_publish(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Killed when just charged, then killed again in its recovery, then started: the same bytes arrive."""
    with stricken(tmp_path, start_redis) as service:
        fill(service)
        for (step, call), when in itertools.product(RECOVERY_STEPS, ("before", "after")):
            request_id = f"request-{next(_requests)}"
            with trying("SIGKILL while publishing"):
                assert service.strike("ledger.charge_release", "after", partial(service.publish, "s", request_id))
            with trying("SIGKILL while recovering a publish"):
                assert service.strike_start(step, when, call), (step, when, call)
                service.process.start()
                assert service.publish("s", request_id).state == "published"
                assert sum(row.request_id == request_id for row in service.check_alive().charges) == 1
