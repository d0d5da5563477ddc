"""Structured logs on standard error, one JSON object a line. No caller may pass an element, a digest or a size.

What libraries log, what a thread or a destructor raises uncaught, and what warnings say, comes out as lines of
the same kind, by type and place only: such texts can hold elements, passwords of URLs, and anything else."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TextIO

import grpc
import structlog

from veilset_server.process import LineLimit, error_places
from veilset_server.rpc.call import Call
from veilset_server.rpc.serving import CallObserver

LINES_A_SECOND = 20
"""Of libraries; lines beyond that are only counted."""


def configure_logs(level: str = "info") -> None:
    """Set up structlog for the process, and everything that would write past it."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryLines()], force=True)
    logging.raiseExceptions = False  # it would print the arguments of a line that cannot be formatted
    sys.excepthook = lambda _, error, __: _tell_uncaught("uncaught", error)
    threading.excepthook = lambda uncaught: _tell_uncaught("uncaught in a thread", uncaught.exc_value)
    sys.unraisablehook = lambda uncaught: _tell_uncaught("uncaught in a destructor", uncaught.exc_value)
    warnings.showwarning = _tell_warning


class _LibraryLines(logging.Handler):
    """Standard library logging: which library logged, where, and which kind of error, but not its text. gRPC logs
    each packet that it cannot parse, so at most a few lines a second."""

    def __init__(self) -> None:
        super().__init__()
        log = structlog.get_logger(__name__)
        self._limit = LineLimit(LINES_A_SECOND, lambda lines: log.warning("lines of libraries left out", lines=lines))

    def emit(self, record: logging.LogRecord) -> None:
        if not self._limit.take():
            return
        error = record.exc_info[1] if record.exc_info else None
        kind = {} if error is None else {"kind": type(error).__name__, "places": error_places(error)}
        _logger(record.levelname)("library", library=record.name, place=f"{record.module}:{record.lineno}", **kind)


def _logger(level: str) -> Callable[..., Any]:
    log = structlog.get_logger(__name__)
    return {"WARNING": log.warning}.get(level, log.error)  # type: ignore[no-any-return]


def _tell_uncaught(event: str, error: BaseException | None) -> None:
    structlog.get_logger(__name__).error(event, kind=type(error).__name__, places=error_places(error))


def _tell_warning(
    message: Warning | str,  # noqa: ARG001 - not written to the log
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    structlog.get_logger(__name__).warning("warning", kind=category.__name__, place=f"{filename}:{lineno}")


log = structlog.get_logger(__name__)

CHANGING = frozenset({"CreateSet", "DeleteSet", "PublishRelease", "RaiseBudget", "ConfirmLoss", "ReconcileReleases"})
"""Methods whose calls are always logged when they succeed: an audit needs to know when these happened."""

CALL_LINES_A_SECOND = 100
"""Of failed calls; lines beyond that are only counted, so that many calls cannot fill the log."""


class CallLog(CallObserver):
    """One line for a call. Calls that change what is owed or shown, and calls that fail, at level info; all others at
    debug. The line of a failed call has the error's ``reason``, one of a fixed list. No line holds a set's name, a message or
    the time that a call took: a name in a failed call is whatever its caller typed. A principal's name is the operator's own.
    """

    def __init__(self) -> None:
        self._limit = LineLimit(CALL_LINES_A_SECOND, lambda calls: log.info("failed calls not logged", calls=calls))

    def ended(self, call: Call) -> None:
        """Write the line, unless it is a failed call beyond the limit."""
        failed = call.code is not grpc.StatusCode.OK
        if failed and not self._limit.take():
            return
        write = log.info if failed or call.label in CHANGING else log.debug
        given = {name: value for name, value in (("reason", call.reason), ("principal", call.principal.name)) if value}
        write("call", method=call.label, code=call.code.name, **given)
