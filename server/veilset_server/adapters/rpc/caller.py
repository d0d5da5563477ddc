"""Whose call is being served: set by the gate at its beginning, read where something comes to belong to the caller."""

from __future__ import annotations

from contextvars import ContextVar

from veilset_server.principals import EVERYBODY, Principal

_current: ContextVar[Principal] = ContextVar("veilset_principal", default=EVERYBODY)


def current_principal() -> Principal:
    """The caller of the call that this task serves. Ask in the handler itself, not in a worker thread."""
    return _current.get()


def serve_for(principal: Principal) -> None:
    """This task now serves that principal; each call has a task of its own."""
    _current.set(principal)
