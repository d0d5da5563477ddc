"""Whose call is being served: set by the gate at its beginning, read where something comes to belong to the caller. And why
it was refused, for the log."""

from __future__ import annotations

from contextvars import ContextVar

from veilset_server.principals import EVERYBODY, Principal

_current: ContextVar[Principal] = ContextVar("veilset_principal", default=EVERYBODY)
_refusal: ContextVar[str] = ContextVar("veilset_refusal", default="")


def current_principal() -> Principal:
    """The caller of the call that this task serves. Ask in the handler itself, not in a worker thread."""
    return _current.get()


def serve_for(principal: Principal) -> None:
    """This task now serves that principal; each call has a task of its own."""
    _current.set(principal)


def refuse_for(reason: str) -> None:
    """This task's call ends with an error of that reason (`VeilsetError.reason`)."""
    _refusal.set(reason)


def refusal_reason() -> str:
    """Why this task's call ended; "" where no error of ours ended it."""
    return _refusal.get()
