"""Recognising a caller: by bearer token, or by the name in a client certificate.

Failures give one answer, whatever was wrong; only the service's own log says what. Attempts that fail are limited by
address. A right token is let in even from an address beyond that limit: 256 bits cannot be guessed at any rate, so the
limit keeps the log and the processor free, and must not let a stranger shut out whoever shares an address with it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import structlog

from veilset.errors import Unauthenticated, Unavailable, VeilsetError
from veilset_server.limits import exceeded
from veilset_server.ports import Clock
from veilset_server.principals import EVERYBODY, AuthMode, Principal
from veilset_server.rpc.allowances import RateLimit
from veilset_server.rpc.identities import Identities, find_identity, parse_identities
from veilset_server.rpc.peer import Context, is_encrypted, is_local
from veilset_server.state.token_file import FILE_NAME, parse_tokens
from veilset_server.state.tokens import TokenBook
from veilset_server.state.watched_file import WatchedFile

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """What a call brings along. peer: as gRPC writes it, with the port. private: whether nobody could have listened.

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
    """The connection of a call."""
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
        """Fails closed: what cannot be read lets nobody in."""
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
