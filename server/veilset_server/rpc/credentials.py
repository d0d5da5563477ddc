"""Who calls: recognised by bearer token, or by a name in a client certificate.

Every failure gives the caller the same answer; only the log of the service says why. Failed attempts are limited by address.
A valid token is accepted from any address, even beyond that limit: 256 bits cannot be guessed at any rate, so the limit only
spares the log and the processor, and must not lock out callers who share an address with an attacker.

Client certificates are mapped to roles and sets by a TOML file:

    [[identity]]
    certificate = "URI:spiffe://example.org/crm"     # or DNS:…, EMAIL:…, CN:…
    name = "crm"
    roles = ["producer"]
    sets = ["customers-*"]

The TLS layer has checked the certificate against the client authority before; here only its names are read.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import structlog

from veilset._service.endpoint import is_loopback
from veilset.errors import InvalidInput, Unauthenticated, Unavailable, VeilsetError, must_be
from veilset_server.ports import Clock
from veilset_server.principals import EVERYBODY, AuthMode, Principal, make_principal
from veilset_server.rpc.allowances import RateLimit
from veilset_server.settings import Settings, exceeded
from veilset_server.state.tokens import FILE_NAME, TokenBook, WatchedFile, parse_tokens

Context = Any  # grpc.ServicerContext, whose auth_context() gives lists, which its type does not say

KINDS: Mapping[str, str] = {
    "URI": "peer_uri",
    "DNS": "peer_dns",
    "EMAIL": "peer_email",
    "CN": "x509_common_name",
}
"""Kind of name → property of gRPC's authentication context. In this order a certificate's own names are looked up."""

_KEYS = frozenset({"certificate", "name", "roles", "sets"})

Identities = Mapping[str, Principal]
"""``KIND:name`` → principal."""

log = structlog.get_logger(__name__)


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


def parse_identities(text: bytes) -> Identities:
    """The identities in a file. Raises InvalidInput naming the entry."""
    try:
        found: dict[str, Any] = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise must_be("identities", f"a TOML file ({error})") from None
    entries = found.pop("identity", [])
    if found or not isinstance(entries, list):
        raise must_be("identities", "a file of [[identity]] entries and nothing else")
    identities: dict[str, Principal] = {}
    for number, entry in enumerate(entries, start=1):
        certificate, principal = _identity(f"identities: entry {number}", entry)
        if certificate in identities:
            raise InvalidInput(
                f"identities: entry {number}: certificate",
                f"identities: entry {number}: certificate {certificate} is in an earlier entry too",
            )
        identities[certificate] = principal
    return identities


def _identity(where: str, entry: object) -> tuple[str, Principal]:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise must_be(where, f"a table of {', '.join(sorted(_KEYS))}")
    certificate, name, roles, sets = (entry[key] for key in ("certificate", "name", "roles", "sets"))
    kind, _, own = certificate.partition(":") if isinstance(certificate, str) else ("", "", "")
    if kind not in KINDS or not own:
        raise must_be(f"{where}: certificate", f"one of {', '.join(KINDS)}, a colon, and the name", certificate)
    for key, value in (("roles", roles), ("sets", sets)):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise must_be(f"{where}: {key}", "a list of texts")
    if not isinstance(name, str):
        raise must_be(f"{where}: name", "a text")
    try:
        return certificate, make_principal(name, roles, sets)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.field}", f"{where}: {error.message}", allowed=error.allowed) from None


def find_identity(identities: Identities, certificate: Mapping[str, Iterable[bytes]]) -> Principal | None:
    """The principal of a connection's certificate, by the first of its names that is known."""
    for kind, key in KINDS.items():
        for value in certificate.get(key, ()):
            principal = identities.get(f"{kind}:{value.decode('utf-8', 'replace')}")
            if principal is not None:
                return principal
    return None


@dataclass(frozen=True, slots=True)
class Connection:
    """What a call brings along. peer: as gRPC writes it, with the port. private: whether the network could not be read by others.

    certificate: properties of the verified client certificate, by gRPC's names. authorization: values of that header.
    """

    peer: str
    private: bool
    certificate: Mapping[str, Iterable[bytes]]
    authorization: tuple[str, ...] = field(repr=False)

    @property
    def address(self) -> str:
        """The peer without its port; of an IPv6 address its /64, since one host has as many addresses as it likes."""
        kind, _, rest = self.peer.partition(":")
        if kind not in ("ipv4", "ipv6"):
            return kind
        host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
        try:
            found = ipaddress.ip_address(host)
        except ValueError:
            return host
        return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def connection_of(context: Context) -> Connection:
    """What a call reveals about its connection: address, encryption, certificate and token."""
    metadata = context.invocation_metadata() or ()
    encrypted = is_encrypted(context)
    return Connection(
        peer=context.peer(),
        private=encrypted or is_local(context),
        certificate=context.auth_context() if encrypted else {},
        authorization=tuple(str(value) for key, value in metadata if key == "authorization"),
    )


class Credentials:
    """Recognises callers. Thread-safe.

    folder: where the tokens file is, or will be. identities: file that names client certificates. insecure: tokens over plain
    text from other machines are taken.
    """

    def __init__(
        self,
        mode: AuthMode,
        folder: Path,
        identities: Path | None,
        clock: Clock,
        *,
        failed_per_minute: int,
        insecure: bool = False,
    ) -> None:
        """Raises StateCorrupted, InvalidInput for a damaged file: such a service must not start."""
        self._mode = mode
        self._clock = clock
        self._insecure = insecure
        self._tokens = WatchedFile(folder / FILE_NAME, lambda text: TokenBook(parse_tokens(text)))
        self._identities = None if identities is None else WatchedFile[Identities](identities, parse_identities)
        self._failed = RateLimit(failed_per_minute / 60, failed_per_minute)
        self._failed_per_minute = failed_per_minute
        self._reported = ""
        if self.on and self._tokens.ever_there:
            self._tokens.read()
        if self.on and self._identities is not None:
            self._identities.read()

    @property
    def on(self) -> bool:
        """Whether callers have to show credentials. Once on, it stays on."""
        if self._mode is AuthMode.AUTO:
            return self._identities is not None or self._tokens.ever_there
        return self._mode is AuthMode.TOKEN

    def recognise(self, connection: Connection) -> Principal:
        """The caller. Raises Unauthenticated, LimitExceeded (too many failures from its address), Unavailable."""
        principal, why = self._find(connection)
        if principal is not None:
            return principal
        if not self._failed.take(connection.address):
            what = "credentials: too many failed attempts from your address; wait a minute"
            raise exceeded(what, "failed_attempts_per_minute", self._failed_per_minute)
        log.warning("authentication failed", address=connection.address, why=why)
        raise refusal()

    def check_again(self, connection: Connection) -> Principal:
        """The caller of a call that began earlier. Raises Unauthenticated, Unavailable."""
        principal, _ = self._find(connection)
        if principal is None:
            raise refusal()
        return principal

    def _find(self, connection: Connection) -> tuple[Principal | None, str]:
        if not self.on:
            return EVERYBODY, "off"
        if not connection.authorization:
            return self._by_certificate(connection)
        if not (self._insecure or connection.private):
            raise Unauthenticated(
                "credentials: a token came in plain text from another machine; it is refused, use TLS"
            )
        scheme, _, token = connection.authorization[0].partition(" ")
        if len(connection.authorization) > 1 or scheme.lower() != "bearer":
            return None, "malformed"
        if not self._tokens.ever_there:
            return None, "no tokens"
        book, now_us = self._read(self._tokens), self._clock.now_us()
        record = book.find(token, now_us)
        return (None, book.why(token, now_us)) if record is None else (record.principal, "")

    def _by_certificate(self, connection: Connection) -> tuple[Principal | None, str]:
        if self._identities is None:
            return None, "missing"
        return find_identity(self._read(self._identities), connection.certificate), "no token, certificate unknown"

    def _read(self, file: WatchedFile[Any]) -> Any:
        """Fails closed: while a file cannot be read no caller is accepted."""
        try:
            return file.read()
        except (VeilsetError, OSError) as failure:
            text = failure.message if isinstance(failure, VeilsetError) else str(failure)
            if text != self._reported:  # once, not at every call
                log.error("credentials cannot be checked", failure=text)  # noqa: TRY400 - by its own text
                self._reported = text
            raise Unavailable("credentials: cannot be checked now; the service's log says why") from None


def refusal() -> Unauthenticated:
    """The one answer to credentials that are missing, wrong, unknown, expired or revoked."""
    return Unauthenticated("credentials: missing or not valid")


def make_credentials(settings: Settings, clock: Clock) -> Credentials:
    """The credentials of a service.

    Raises StateCorrupted, InvalidInput for a damaged file of tokens or identities, and InvalidInput for an address that others
    reach where nothing asks who calls: neither tokens, nor identities, nor certificates.
    """
    credentials = Credentials(
        AuthMode(settings.auth),
        settings.state,
        settings.identities,
        clock,
        failed_per_minute=settings.limits.failed_attempts_per_minute,
        insecure=settings.insecure,
    )
    if not (credentials.on or settings.client_ca or settings.insecure or is_loopback(settings.host)):
        raise InvalidInput(
            "host",
            f"host {settings.host!r} can be reached by other machines, and callers would not be authenticated: create a token "
            "(veilset token create), or give auth token, client-ca or insecure, or use a loopback address",
        )
    return credentials
