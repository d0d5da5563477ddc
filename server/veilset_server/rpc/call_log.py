"""The request log: one line a call, told by method and status."""

from __future__ import annotations

import time

import grpc
import structlog

from veilset_server.rpc.caller import current_principal, refusal_reason
from veilset_server.rpc.watching import Call

log = structlog.get_logger(__name__)

CHANGING = frozenset({"CreateSet", "DeleteSet", "PublishRelease", "RaiseBudget", "ConfirmLoss", "ReconcileReleases"})
"""Methods whose calls are always logged when they succeed: who audits wants to know when these happened."""

LINES_A_SECOND = 100
"""Of failed calls; beyond them only their number is told, so that a flood of calls is no flood of lines."""


class CallLog:
    """A `watching.CallObserver`. Calls that change what is owed or shown, and calls that fail, at level info; all others at
    debug. A failed call's line tells the error's ``reason``, one of a fixed list. No line holds a set's name, a message or
    the time that a call took: a name in a failed call is whatever its caller typed. A principal's name is the operator's own.
    """

    def __init__(self) -> None:
        self._second = 0
        self._lines = 0

    def started(self, call: Call) -> None:
        """Not worth a line."""

    def opened(self, call: Call) -> None:
        """Not worth a line."""

    def ended(self, call: Call, code: grpc.StatusCode) -> None:
        """One line."""
        failed = code is not grpc.StatusCode.OK
        if failed and self._is_flood():
            return
        tell = log.info if failed or call.label in CHANGING else log.debug
        name = current_principal().name
        reason = refusal_reason() if failed else ""
        tell("call", method=call.label, code=code.name, **_given(reason=reason, principal=name))

    def _is_flood(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            if self._lines > LINES_A_SECOND:
                log.info("failed calls not logged", calls=self._lines - LINES_A_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines > LINES_A_SECOND


def _given(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
