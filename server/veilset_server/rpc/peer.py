"""Whether others could have listened to a call on its way."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from veilset._service.endpoint import is_loopback

Context = Any  # grpc.ServicerContext, whose auth_context() gives lists, which its type does not say


def is_encrypted(context: Context) -> bool:
    """Whether the call came by TLS."""
    return bool(context.auth_context().get("transport_security_type") == [b"ssl"])


def is_local(context: Context) -> bool:
    """Whether the caller is on this machine, going by its address: what it says in plain text then passes no network."""
    _, _, rest = context.peer().partition(":")
    if is_inside(context):
        return True
    return is_loopback(unquote(rest).rpartition(":")[0].strip("[]"))


def is_inside(context: Context) -> bool:
    """Whether the call came by the socket that the service keeps for its own health checks."""
    return bool(context.peer().startswith("unix"))
