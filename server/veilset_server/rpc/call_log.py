"""The request log: one line a call, told by method and status."""

from __future__ import annotations

import grpc
import structlog

from veilset_server.error_places import LineLimit
from veilset_server.rpc.call import Call

log = structlog.get_logger(__name__)

CHANGING = frozenset({"CreateSet", "DeleteSet", "PublishRelease", "RaiseBudget", "ConfirmLoss", "ReconcileReleases"})
"""Methods whose calls are always logged when they succeed: who audits wants to know when these happened."""

LINES_A_SECOND = 100
"""Of failed calls; beyond them only their number is told, so that a flood of calls is no flood of lines."""


class CallLog:
    """A `serving.CallObserver`. Calls that change what is owed or shown, and calls that fail, at level info; all others at
    debug. A failed call's line tells the error's ``reason``, one of a fixed list. No line holds a set's name, a message or
    the time that a call took: a name in a failed call is whatever its caller typed. A principal's name is the operator's own.
    """

    def __init__(self) -> None:
        self._limit = LineLimit(LINES_A_SECOND, lambda calls: log.info("failed calls not logged", calls=calls))

    def started(self, call: Call) -> None:
        """Not worth a line."""

    def opened(self, call: Call) -> None:
        """Not worth a line."""

    def ended(self, call: Call) -> None:
        """One line."""
        failed = call.code is not grpc.StatusCode.OK
        if failed and not self._limit.take():
            return
        tell = log.info if failed or call.label in CHANGING else log.debug
        given = {name: value for name, value in (("reason", call.reason), ("principal", call.principal.name)) if value}
        tell("call", method=call.label, code=call.code.name, **given)
