"""The request log: what gets a line, what the line says, and what a flood of failed calls leaves."""

from __future__ import annotations

import json

import grpc
import pytest

from harness.log_hooks import logs_left_alone
from veilset.errors import BudgetExceeded, FailedPrecondition, StateRolledBack, VeilsetError
from veilset_server.metrics.logs import CALL_LINES_A_SECOND, CallLog, configure_logs
from veilset_server.rpc.call import Call


def lines(
    capsys: pytest.CaptureFixture[str], level: str, *ended: tuple[str, grpc.StatusCode]
) -> list[dict[str, object]]:
    """The log of these calls."""
    with logs_left_alone():
        configure_logs(level)
        log = CallLog()
        for method, code in ended:
            log.ended(Call("s", method, False, (), set_name="typed", code=code))
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_changes_and_failures_are_logged_and_the_rest_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    """Method, status, level, time; no name of a set."""
    calls = [
        ("GetSet", grpc.StatusCode.OK),
        ("GetSet", grpc.StatusCode.NOT_FOUND),
        ("PublishRelease", grpc.StatusCode.OK),
    ]
    told = lines(capsys, "info", *calls)
    assert [(line["method"], line["code"]) for line in told] == [("GetSet", "NOT_FOUND"), ("PublishRelease", "OK")]
    assert all(set(line) == {"event", "method", "code", "level", "timestamp"} for line in told)
    assert len(lines(capsys, "debug", *calls)) == 3
    assert lines(capsys, "error", *calls) == []


class Context:
    """What a call that is open shows of itself."""

    def is_active(self) -> bool:
        return True

    def set_code(self, _: object) -> None: ...

    def set_details(self, _: object) -> None: ...

    def set_trailing_metadata(self, _: object) -> None: ...


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StateRolledBack("set secret: older"), "STATE_ROLLED_BACK"),
        (BudgetExceeded("account secret: spent"), "BUDGET_EXCEEDED"),
        (FailedPrecondition("set secret: no upload"), "FAILED_PRECONDITION"),
    ],
)
def test_the_reason_is_told(error: VeilsetError, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From a fixed list, and no text of the error. The next call's line has none of it."""
    with logs_left_alone():
        configure_logs("info")
        Call("s", "PublishRelease", False, (), context=Context(), ended=CallLog().ended).end(error)
        CallLog().ended(Call("s", "PublishRelease", False, (), code=grpc.StatusCode.CANCELLED))
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["reason"] == reason
    assert "secret" not in str(first)
    assert "reason" not in second


def test_a_flood_of_failures_is_no_flood_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """At most so many a second, whatever the seconds; changes are told all the same."""
    failed = [("GetSet", grpc.StatusCode.UNAUTHENTICATED)] * (20 * CALL_LINES_A_SECOND)
    told = lines(capsys, "info", *failed, ("DeleteSet", grpc.StatusCode.OK))
    assert told[-1]["method"] == "DeleteSet"
    assert CALL_LINES_A_SECOND <= len(told) < 10 * CALL_LINES_A_SECOND
