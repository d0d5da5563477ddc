"""Where the service is and how to reach it: address, TLS files, token, and what may be sent in plain text."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veilset._system import read_small
from veilset.errors import InvalidInput, must_be

TLS_PREFIX = "tls://"
_DNS_PREFIX = "dns:///"

FileName = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked target. address: what gRPC connects to, host:port or unix:path; host: the part a certificate has to name.

    tls: whether the connection is encrypted. ca: authority to trust in place of the well-known ones. cert, key: this client's own
    certificate, for a service that asks for one. token: bearer token, sent with every call.
    """

    address: str
    host: str
    port: int
    tls: bool
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.address

    @property
    def may_use_proxy(self) -> bool:
        """Whether gRPC may use a proxy: only with TLS to another machine, as a proxy reads plain text."""
        return self.tls and self.port > 0 and not is_loopback(self.host)

    def proxy(self, environment: Mapping[str, str]) -> str:
        """The proxy that gRPC uses, without its password; empty for none."""
        if not self.may_use_proxy or _bypasses_proxy(self.host):
            return ""
        found = (environment.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy"))  # in gRPC's order
        return next((url.rpartition("://")[2].rpartition("@")[2] for url in found if url), "")


def make_endpoint(
    target: str,
    *,
    token: str | None = None,
    ca: FileName | None = None,
    cert: FileName | None = None,
    key: FileName | None = None,
    insecure: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Endpoint:
    """Check a target with what belongs to it; what is not given is taken from ``environment``.

    TLS is on where the target starts with tls:// or ca or cert is given. Variables: VEILSET_TOKEN, VEILSET_TOKEN_FILE,
    VEILSET_CA_FILE, VEILSET_CERT_FILE, VEILSET_CERT_KEY_FILE. Raises InvalidInput: for a malformed target, a certificate
    without its key, and plain text to another machine unless ``insecure``: digests are guessable, and a token is a password.
    """
    variables = environment or {}
    ca = ca or variables.get("VEILSET_CA_FILE") or None
    cert = cert or variables.get("VEILSET_CERT_FILE") or None
    key = key or variables.get("VEILSET_CERT_KEY_FILE") or None
    if (cert is None) != (key is None):
        missing = "key" if key is None else "cert"
        raise InvalidInput(missing, f"{missing} is missing: a client certificate needs both cert and key")
    address = target.removeprefix(TLS_PREFIX)
    host, port = _host_and_port(address, target)
    tls = target.startswith(TLS_PREFIX) or ca is not None or cert is not None
    if not (tls or insecure or is_loopback(host)):
        raise InvalidInput(
            "server",
            f"server {target} is another machine, and the connection would not be encrypted; use TLS "
            "(tls://host:port, or a ca), or allow plain text with insecure",
        )
    return Endpoint(
        address,
        host,
        port,
        tls,
        ca=Path(ca) if ca is not None else None,
        cert=Path(cert) if cert is not None else None,
        key=Path(key) if key is not None else None,
        token=_token(token, variables),
    )


def _host_and_port(address: str, target: str) -> tuple[str, int]:
    if address.startswith("unix:"):
        return "localhost", 0
    written, separator, port = address.removeprefix(_DNS_PREFIX).rpartition(":")
    host = bare_host(written)
    well_formed = (
        separator
        and host
        and not any(bad in host for bad in "/@ []")
        and (":" in host) == (written != host)
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
    )
    if not (well_formed and 1 <= int(port) <= 65_535):
        raise must_be("server", "host:port, such as localhost:50051, or tls://host:port", target)
    return host, int(port)


def _bypasses_proxy(host: str) -> bool:
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined] # slow to import, and only errors ask

    return bool(proxy_bypass_environment(host))


def bare_host(host: str) -> str:
    """``host`` without the brackets of an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


def host_and_port(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, can only be this machine."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _token(given: str | None, variables: Mapping[str, str]) -> str | None:
    """The token. Raises InvalidInput, without the token, for a file that cannot be read and for text that no header can hold."""
    token = given or variables.get("VEILSET_TOKEN") or None
    path = variables.get("VEILSET_TOKEN_FILE")
    if token is None and path:
        token = read_token(path)
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise must_be("token", "printable ASCII without spaces")
    return token


def read_token(path: FileName) -> str:
    """A token from a file, without white space around it. Raises InvalidInput."""
    try:
        token = read_small(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidInput(
            "token-file", f"token-file cannot be read ({reason}); give a file that holds a token"
        ) from None
    if not token:
        raise InvalidInput("token-file", "token-file is empty; give a file that holds a token")
    return token
