"""A publish whose answer was lost is repeated without a second charge, also where the caller named no request id."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

from harness.programs import unused_port, veilset
from harness.service_process import ServiceProcess
from veilset.errors import BudgetExceeded, NotFound, Unavailable, VeilsetError
from veilset.service import Service, connect


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
