"""Whether others could have listened to a call on its way."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import grpc

from veilset._service.endpoint import is_loopback

Context = grpc.aio.ServicerContext[Any, Any]


def is_encrypted(context: Context) -> bool:
    """Whether the call came by TLS."""
    return context.auth_context().get("transport_security_type") == [b"ssl"]


def is_local(context: Context) -> bool:
    """Whether the caller is on this machine, going by its address: what it says in plain text then passes no network."""
    kind, _, rest = context.peer().partition(":")
    if kind == "unix":
        return True
    return is_loopback(unquote(rest).rpartition(":")[0].strip("[]"))
