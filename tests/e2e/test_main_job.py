"""The main job through the library: create, add, publish, read, spend, delete; with each kind of Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

import veilset
from harness.certificates import Certificates
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector, redis_content
from veilset.core.estimates.intervals import binomial_interval
from veilset.errors import AlreadyExists, BudgetExceeded, FailedPrecondition, NotFound, ReleaseRejected

CONFIDENCE = 1 - 1e-7  # of each rate's interval; two rates, two tails
MEMBERS = [f"member{i}@example.org" for i in range(3000)]
OTHERS = [f"other{i}@example.org" for i in range(3000)]


def create(service: veilset.Service, name: str, releases: int = 2) -> None:
    """A set for ``MEMBERS`` at a strong enough setting that mixed-up answers show."""
    epsilon = 4.0
    service.create_set(
        name, size=3000, epsilon=epsilon, delta=1e-9, adjacency="add-remove", budget_epsilon=releases * epsilon
    )


def assert_rate(found: np.ndarray[tuple[int], np.dtype[np.bool_]], predicted: float) -> None:
    """As many yes answers as predicted, within an interval that a sound run leaves once in ten million."""
    low, high = binomial_interval(len(found), predicted, CONFIDENCE)
    assert low <= int(found.sum()) <= high, (low, int(found.sum()), high)


def test_the_whole_job(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """Every step answers what it did, and the reader's answers are as good as it says."""
    with service.connect() as connection:
        create(connection, set_name)
        assert set_name in [found.name for found in connection.list_sets()]
        result = connection.add(set_name, MEMBERS)
        assert (result.elements, result.resumed) == (3000, 0)
        release = connection.publish(set_name)
        assert (release.set_name, release.sequence, release.state) == (set_name, 1, "published")
        assert [key.hex() for key in release.public_keys] == [service.public_key]
        assert connection.get_release(set_name) == connection.get_release(set_name, 1) == release
        budget = connection.budget(set_name)
        assert (budget.epsilon_spent, budget.epsilon_left, budget.charges) == (4.0, 4.0, 1)
        assert (budget.delta_spent, budget.delta_total) == ("0", "2e-9")

    view = veilset.open(service.redis, set_name, public_keys=[service.public_key])
    assert view.header == release.header
    assert_rate(view.contains_many(MEMBERS), view.decoder.true_positive_rate)
    assert_rate(view.contains_many(OTHERS), view.decoder.false_positive_rate)
    assert (MEMBERS[0] in view) == view.contains_many(MEMBERS)[0]
    assert ((view.scores(MEMBERS) > 0) == view.contains_many(MEMBERS)).all()

    view.save(tmp_path / "release.veilset")
    for source in (tmp_path / "release.veilset", (tmp_path / "release.veilset").read_bytes()):
        again = veilset.open(source, set_name, public_keys=[service.public_key])
        assert again.header == view.header
        assert again.decoder.true_positive_rate == view.decoder.true_positive_rate
        assert np.array_equal(again.vector, view.vector)


def test_releases_add_up_and_end_with_the_budget(service: ServiceProcess, set_name: str) -> None:
    """Fresh noise each time; a repeated request id changes and costs nothing; past the budget nothing is published."""
    with service.connect() as connection:
        create(connection, set_name, releases=2)
        connection.add(set_name, MEMBERS[:100])
        first = connection.publish(set_name, request_id="first")
        assert connection.publish(set_name, request_id="first") == first
        assert connection.budget(set_name).charges == 1
        one = veilset.open(service.redis, set_name)
        connection.add(set_name, MEMBERS[100:])
        connection.publish(set_name)
        two = veilset.open(service.redis, set_name)
        assert [found.sequence for found in connection.list_releases(set_name)] == [2, 1]
        assert not np.array_equal(one.vector, two.vector)
        with pytest.raises(BudgetExceeded) as refusal:
            connection.publish(set_name)
        assert refusal.value.details["left_epsilon"] == "0"
        assert connection.budget(set_name).charges == 2
        connection.raise_budget(set_name, epsilon=12, delta=3e-9, reason="a third release was agreed on")
        assert connection.publish(set_name).sequence == 3
        assert connection.publish(set_name, request_id="first").sequence == 1
    with pytest.raises(ReleaseRejected):
        veilset.open(service.redis, set_name, min_sequence=4)


def test_deletion_leaves_the_charges_and_nothing_else(service: ServiceProcess, set_name: str) -> None:
    """A set made anew under the old name meets the old account, and its sequences go on."""
    with service.connect() as connection:
        create(connection, set_name, releases=1)
        connection.add(set_name, MEMBERS)
        connection.publish(set_name)
        with pytest.raises(AlreadyExists):
            create(connection, set_name)
        connection.delete_set(set_name)
        assert not [key for key in redis_content(service.redis) if key.startswith(f"veilset:{set_name}:")]
        with pytest.raises(NotFound):
            connection.get_set(set_name)
        with pytest.raises(NotFound):
            veilset.open(service.redis, set_name)
        with pytest.raises(FailedPrecondition, match="raise it first"):
            create(connection, set_name, releases=9)
        create(connection, set_name, releases=1)
        connection.add(set_name, MEMBERS[:10])
        assert np.unpackbits(np.frombuffer(raw_vector(service.state, set_name), np.uint8)).sum() <= 10
        with pytest.raises(BudgetExceeded):
            connection.publish(set_name)
        connection.raise_budget(set_name, epsilon=8, delta=2e-9, reason="agreed on")
        assert connection.publish(set_name).sequence == 2


def test_the_raw_vector_is_the_filter_of_what_was_added(service: ServiceProcess, set_name: str) -> None:
    """All uploads together, str and bytes, duplicates and normalisation included."""
    with service.connect() as connection:
        info = connection.create_set(
            set_name, size=3000, epsilon=4, delta=1e-9, adjacency="add-remove", normalization="email"
        )
        connection.add(set_name, [element.upper() for element in MEMBERS[:2000]])
        connection.add(set_name, [element.encode() for element in MEMBERS[1000:]])
    lowered = [element.lower().encode() for element in MEMBERS]
    assert raw_vector(service.state, set_name) == expected_vector(shape_of_set(info), lowered)


def test_what_redis_lost_comes_back_byte_for_byte(service: ServiceProcess, set_name: str) -> None:
    """Reconciling costs nothing, and does nothing where nothing is missing."""
    with service.connect() as connection:
        create(connection, set_name)
        connection.add(set_name, MEMBERS)
        connection.publish(set_name)
        before = redis_content(service.redis)
        assert connection.reconcile(set_name) == (1, 0, ())
        lost = [key for key in before if key.startswith(f"veilset:{set_name}:")]
        assert len(lost) == 3
        with redis.Redis.from_url(service.redis) as client:
            client.delete(*lost)
        assert connection.reconcile(set_name) == (1, 3, ())
        assert redis_content(service.redis) == before
        assert connection.budget(set_name).charges == 1


@pytest.mark.parametrize("kind", ["password", "TLS and password", "cluster"])
def test_the_job_with_a_redis_of_ones_own(
    kind: str,
    start_service: Callable[..., ServiceProcess],
    start_redis: Callable[..., RedisServer],
    certificates: Certificates,
) -> None:
    """The same; the password is neither told nor logged."""
    password = "a-secret-of-redis"  # noqa: S105 - it is one
    options: dict[str, dict[str, Any]] = {
        "password": {"password": password},
        "TLS and password": {"password": password, "certificates": certificates},
        "cluster": {"arguments": ["--cluster-enabled", "yes"]},
    }
    server = start_redis(**options[kind])
    if kind == "cluster":
        server.make_cluster()
    plain = server.url.replace("+cluster", "")
    service = start_service("--redis", server.url)
    assert service.redis == ""
    with service.connect() as connection:
        create(connection, "members")
        connection.add("members", MEMBERS)
        release = connection.publish("members")
        view = veilset.open(server.url, "members", public_keys=[service.public_key])
        assert view.header == release.header
        assert_rate(view.contains_many(MEMBERS), view.decoder.true_positive_rate)
        assert sorted(redis_content(plain)) == [
            "veilset:members:1:bits:0",
            "veilset:members:1:manifest",
            "veilset:members:latest",
        ]
        assert server.command("GET", "veilset:members:latest") == b"1"
        connection.delete_set("members")
    assert redis_content(plain) == {}
    service.stop()
    assert password not in service.log_path.read_text()
