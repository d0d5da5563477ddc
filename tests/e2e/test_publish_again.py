"""A publish whose answer was lost is repeated without a second charge, also where the caller named no request id."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis

from harness.patience import SECONDS
from harness.programs import unused_port, veilset, wait_until
from harness.service_process import ServiceProcess
from veilset._service.service import Service, connect
from veilset.errors import BudgetExceeded, FailedPrecondition, NotFound, Unavailable, VeilsetError
from veilset.v1 import membership_pb2 as pb


def create(connection: Service) -> None:
    """A set that can be published once."""
    connection.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9)
    connection.add("s", ["a", "b"])


def test_a_lost_answer_is_asked_for_again(start_service: Callable[..., ServiceProcess]) -> None:
    """The service hangs when it is asked, so nobody knows what became of the publish; the error tells how to find out."""
    process = start_service()
    with process.connect() as connection:
        create(connection)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable) as lost:
                connection.publish("s", timeout_seconds=0.5)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        request_id = lost.value.request_id
        assert request_id is not None
        assert lost.value.details["request_id"] == request_id
        assert f"request id {request_id}" in str(lost.value)
        releases = [connection.publish("s", request_id=request_id) for _ in range(3)]
        assert {release.sequence for release in releases} == {1}
        assert connection.budget("s").charges == 1


@pytest.mark.parametrize("given", [None, "mine"])
def test_a_refusal_carries_the_request_id_and_does_not_ask_for_a_repeat(
    service: ServiceProcess, given: str | None
) -> None:
    """Nothing was charged, and the same call would be refused again."""
    with service.connect() as connection, pytest.raises(NotFound) as refused:
        connection.publish("no-such-set", request_id=given)
    assert refused.value.request_id is not None
    assert given in (None, refused.value.request_id)
    assert "request id" not in str(refused.value)


def test_a_spent_budget_is_no_reason_to_repeat(service: ServiceProcess, set_name: str) -> None:
    """BudgetExceeded says that nothing was charged."""
    with service.connect() as connection:
        connection.create_set(set_name, size=1000, epsilon=1, adjacency="add-remove", delta=1e-9)
        connection.add(set_name, ["a"])
        connection.publish(set_name)
        with pytest.raises(BudgetExceeded) as refused:
            connection.publish(set_name)
    assert refused.value.request_id
    assert "request id" not in str(refused.value)


def test_other_calls_have_no_request_id(service: ServiceProcess) -> None:
    """It belongs to publishing."""
    with service.connect() as connection, pytest.raises(VeilsetError) as refused:
        connection.get_set("no-such-set")
    assert refused.value.request_id is None


def test_the_command_line_tells_it() -> None:
    """In its one line, ready to be pasted behind --request-id."""
    server = f"localhost:{unused_port()}"
    complaint = veilset("publish", "s", "--server", server).complaint()
    found = re.search(r"request id ([0-9a-f]{32})\b", complaint)
    assert found is not None, complaint
    assert f"request id {found[1]}" in veilset("publish", "s", "--server", server, "--request-id", found[1]).complaint()
    with pytest.raises(Unavailable, match="request id mine"), connect(server) as connection:
        connection.publish("s", request_id="mine")


@pytest.mark.parametrize(
    ("first", "second"),
    [((None, 0.0), (0.5, 0.0)), ((0.5, 0.0), (None, 0.0)), ((0.5, 0.0), (0.25, 0.0)), ((0.5, 0.0), (0.5, 1e-6))],
)
def test_another_request_under_the_same_id_is_refused(
    service: ServiceProcess, set_name: str, first: tuple[float | None, float], second: tuple[float | None, float]
) -> None:
    """Or it would get a release with another count than it asked for, or without one. The first one can be repeated."""
    with service.connect() as connection:
        connection.create_set(
            set_name, size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=8, budget_delta=1e-3
        )
        connection.add(set_name, ["a", "b"])
        made, *again = [
            connection.publish(set_name, request_id="r", count_epsilon=first[0], count_delta=first[1]) for _ in range(3)
        ]
        assert [release.sequence for release in again] == [made.sequence] * 2
        for wait in (True, False):
            with pytest.raises(FailedPrecondition, match="request_id: made release 1") as refused:
                connection.publish(set_name, request_id="r", count_epsilon=second[0], count_delta=second[1], wait=wait)
            assert refused.value.details["field"] == "count"
        assert connection.budget(set_name).charges == 1


def test_repeats_that_wait_for_redis_stop_nobody_else(start_service: Callable[..., ServiceProcess]) -> None:
    """Redis takes no bits; far more repeats of one publish wait for it than the service has threads. Everything else goes on,
    and in the end all of them get the one release."""
    process = start_service("--workers", 2, "--publish-wait-seconds", 600)
    with (
        process.connect() as connection,
        process.stub() as stub,
        redis.Redis.from_url(process.redis) as client,
    ):
        promise: dict[str, Any] = {"epsilon": 1, "adjacency": "add-remove", "delta": 1e-9, "allow_poor_utility": True}
        connection.create_set("s", size=1000, bits=40_000_000, hashes=1, **promise)
        connection.add("s", ["a", "b"])
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (1 << 20))
        request = pb.PublishReleaseRequest(set_name="s", request_id="r")
        publishes = [stub.PublishRelease.future(request, timeout=600) for _ in range(20)]
        wait_until(lambda: [release.state for release in connection.list_releases("s")] == ["pending"])
        for _ in range(100):
            assert stub.GetSet(pb.GetSetRequest(name="s"), timeout=SECONDS).set.name == "s"
        connection.add("s", ["c"])
        assert not any(publish.done() for publish in publishes)
        client.config_set("maxmemory", 0)
        stub.ReconcileReleases(pb.ReconcileReleasesRequest(), timeout=SECONDS)
        made = {(answer.release.sequence, answer.release.state) for answer in (p.result() for p in publishes)}
        assert made == {(1, pb.RELEASE_STATE_PUBLISHED)}
        assert connection.budget("s").charges == 1
