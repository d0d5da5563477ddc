"""Tokens for the tests, and stubs that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from harness.service_process import ServiceProcess
from veilset._service.channel import BearerToken
from veilset.v1.membership_pb2_grpc import MembershipServiceStub
from veilset_server.principals import make_principal
from veilset_server.state.entropy import SystemClock
from veilset_server.state.tokens import TokenFile, TokenRecord, make_token, make_token_id, token_hash


def new_token(
    state: Path, role: str | Sequence[str], sets: Sequence[str] = ("*",), name: str = "", seconds: float | None = None
) -> str:
    """A token in the state folder's file, as ``veilset token create`` makes it."""
    now_us, token_id = SystemClock().now_us(), make_token_id()
    text = make_token(token_id)
    principal = make_principal(name or token_id, [role] if isinstance(role, str) else role, sets)
    expires_at_us = None if seconds is None else now_us + int(seconds * 1e6)
    TokenFile(state).add(TokenRecord(token_id, principal, token_hash(text), now_us, expires_at_us), now_us)
    return text


def revoke(state: Path, token: str) -> None:
    """End a token."""
    TokenFile(state).revoke(token.split("_")[1], SystemClock().now_us())


@contextmanager
def stub_with(service: ServiceProcess, token: str | None) -> Iterator[MembershipServiceStub]:
    """A bare stub, on a connection of its own, that shows a token."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(service.address, options) as channel:
        yield MembershipServiceStub(grpc.intercept_channel(channel, BearerToken(token)) if token else channel)
