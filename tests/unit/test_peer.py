"""Which callers are on this machine, by the address that gRPC gives."""

from __future__ import annotations

from typing import Any, cast

import pytest

from veilset_server.rpc.credentials import is_encrypted, is_local


class Context:
    """As much of a call's context as is looked at."""

    def __init__(self, peer: str, security: bytes | None = None) -> None:
        self._peer, self._security = peer, security

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._security is None else {"transport_security_type": [self._security]}


LOCAL = [
    "ipv4:127.0.0.1:5",
    "ipv4:127.9.9.9:5",
    "ipv6:%5B::1%5D:5",
    "ipv6:[::1]:5",
    "ipv6:%5B::ffff:127.0.0.1%5D:5",
    "unix:",
]
DISTANT = [
    "ipv4:10.0.0.1:5",
    "ipv6:%5B2001:db8::1%5D:5",
    "ipv6:%5B::ffff:10.0.0.1%5D:5",
    "ipv6:%5Bfe80::1%251%5D:5",
    "",
    "5",
]


@pytest.mark.parametrize("peer", [*LOCAL, *DISTANT])
def test_only_loopback_is_local(peer: str) -> None:
    """Whatever is not understood is distant."""
    assert is_local(cast(Any, Context(peer))) == (peer in LOCAL)


@pytest.mark.parametrize(("security", "encrypted"), [(b"ssl", True), (b"insecure", False), (None, False)])
def test_only_tls_is_encrypted(security: bytes | None, encrypted: bool) -> None:
    """Whatever is not known to be is not."""
    assert is_encrypted(cast(Any, Context("ipv4:127.0.0.1:5", security))) == encrypted
