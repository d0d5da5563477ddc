"""Connections to Redis: replies are bounded, a server that changes behind its name is found anew, a wrong scheme is named.

This module takes a third of a second to import, as redis-py does.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,  # noqa: A004 - redis-py's name
    MasterDownError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004
)
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection

from veilset._reader.redis_errors import mend_of
from veilset._reader.redis_replies import BoundedParser
from veilset._reader.redis_url import PROTOCOL

RESOLVE_SECONDS = 5.0
"""How long idle connections are trusted to be those that their name leads to."""
UNRESOLVED_SECONDS = 60.0
"""How long where the name cannot be resolved."""
PROBE_SECONDS = 2.0
GREETING_SECONDS = 0.5


class Lasting(RedisError):
    """A cause that was found out by asking further; ``mend`` says what to do."""

    def __init__(self, mend: str) -> None:
        super().__init__(mend)
        self.mend = mend


class _Bounded:
    """Mixed into redis-py's connections."""

    _parser: BoundedParser
    answered = False
    """Whether the server has answered since we connected; where it never does, the scheme may be wrong."""
    asked = False
    """Whether it was sent anything since."""

    def set_parser(self, parser_class: Any) -> None:
        """Ours, whatever is asked for, with the errors of what is asked for: a cluster's has more."""
        bounded = type("BoundedParser", (BoundedParser,), {"EXCEPTION_CLASSES": parser_class.EXCEPTION_CLASSES})
        super().set_parser(bounded)  # type: ignore[misc]

    def can_read(self, *arguments: Any, **options: Any) -> bool:
        """Whether there is something. What a server says before it is asked is why it will not serve us, and raised."""
        there = bool(super().can_read(*arguments, **options))  # type: ignore[misc]
        if there and not self.asked:
            self.read_response()
        return there

    def send_packed_command(self, *arguments: Any, **options: Any) -> None:
        """Send, and allow for the answers."""
        try:
            super().send_packed_command(*arguments, **options)  # type: ignore[misc]
        except ConnectionError as error:
            self._ask_further(error)
            raise
        self.asked = True
        self._parser.refill()  # after it, as it may have to connect first

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """One answer; what a channel brings is asked for once and comes for ever, so each message is allowed for."""
        if options.get("push_request"):
            self._parser.refill()
        try:
            response = super().read_response(*arguments, **options)  # type: ignore[misc]
        except (ReadOnlyError, MasterDownError, BusyLoadingError):
            self.mark_for_reconnect()  # type: ignore[attr-defined]  # another may be the primary by now
            raise
        except ConnectionError as error:
            self._ask_further(error)
            raise
        self.answered = True
        return response

    def _ask_further(self, error: Exception) -> None:
        known = "max number of clients" in str(error) or "connecting to" in str(error)
        if type(error) is ConnectionError and not self.answered and not known:
            self.find_cause()

    def find_cause(self) -> None:
        """Ask further why the server does not answer. Raises Lasting."""


class _BoundedConnection(_Bounded, Connection):
    def find_cause(self) -> None:
        if mend := mend_of(_greeting(self.host, self.port)):
            raise Lasting(mend) from None
        if _speaks_tls(self.host, self.port):
            raise Lasting("it speaks TLS, and the URL says plain text; give a rediss:// URL") from None


class _BoundedTlsConnection(_Bounded, SSLConnection):
    def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
        """The handshake has the time of connecting: a server of plain text may wait for ever for the rest of it."""
        sock.settimeout(self.socket_connect_timeout)
        try:
            wrapped = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        except OSError as error:
            if not isinstance(error, ssl.SSLCertVerificationError) and _speaks_plain_text(self.host, self.port):
                raise Lasting("it speaks plain text, and the URL says TLS; give a redis:// URL") from None
            raise
        wrapped.settimeout(self.socket_timeout)
        return wrapped

    def find_cause(self) -> None:
        """A client certificate is refused only behind the handshake, and a reset may come before the reason is read; so we
        connect once more and say nothing."""
        with suppress(TimeoutError, socket.timeout), self._connect() as connection:  # type: ignore[no-untyped-call]
            connection.settimeout(PROBE_SECONDS)
            if not connection.recv(1):
                raise Lasting("it ends the connection behind the handshake; it may ask for another client certificate")


class _BoundedUnixConnection(_Bounded, UnixDomainSocketConnection):
    pass


class _BoundedSentinelConnection(SentinelManagedConnection, _BoundedConnection):
    pass


class _BoundedSentinelTlsConnection(SentinelManagedConnection, _BoundedTlsConnection):
    pass


_BOUNDED = {
    Connection: _BoundedConnection,
    SSLConnection: _BoundedTlsConnection,
    UnixDomainSocketConnection: _BoundedUnixConnection,
}


class BoundedPool(ConnectionPool):
    """Hands out connections whose replies are bounded; for single servers and for the nodes of a cluster.

    Where one of them meets a server that is not the primary any more, or the host's name leads elsewhere, the idle ones are
    closed, so that the next command connects anew.
    """

    def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
        self._addresses: frozenset[str] = frozenset()
        self._look_again = 0.0
        bounded = _BOUNDED.get(connection_class, connection_class)
        super().__init__(connection_class=bounded, **{**options, "protocol": PROTOCOL, "driver_info": None})

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """An idle one that leads where the name does, or a new one."""
        host, port = self.connection_kwargs.get("host"), self.connection_kwargs.get("port", 0)
        if host and time.monotonic() >= self._look_again:
            wait = RESOLVE_SECONDS
            try:
                addresses = frozenset(str(entry[4][0]) for entry in socket.getaddrinfo(host, port))
                if self._addresses and addresses != self._addresses:
                    self.disconnect(inuse_connections=False)
                self._addresses = addresses
            except (
                OSError
            ):  # connecting says so; a connection that stands goes on, without a time-out of names at each command
                wait = UNRESOLVED_SECONDS
            self._look_again = time.monotonic() + wait
        return super().get_connection(*arguments, **options)

    def release(self, connection: Any) -> None:
        """Take one back."""
        if connection.should_reconnect():
            self.disconnect(inuse_connections=False)
            self.update_active_connections_for_reconnect()
        super().release(connection)


class BoundedSentinelPool(SentinelConnectionPool):
    """The same behind Sentinels, which say where the primary is whenever a connection is made."""

    def __init__(self, sentinel: FoundPrimary, name: str, *, tls: bool, **options: Any) -> None:
        connection_class = _BoundedSentinelTlsConnection if tls else _BoundedSentinelConnection
        options |= {"protocol": PROTOCOL, "driver_info": None, "connection_class": connection_class}
        super().__init__(name, sentinel, **options)  # type: ignore[no-untyped-call]

    def release(self, connection: Any) -> None:
        """Take one back."""
        if connection.should_reconnect():
            self.disconnect(inuse_connections=False)
        super().release(connection)

    def close(self) -> None:
        """Close the connections to the Sentinels too."""
        super().close()
        self.sentinel_manager.close()


class FoundPrimary(Sentinel):
    """redis-py's Sentinel, over our connections, and clear about why there is no primary."""

    def __init__(self, sentinels: list[Any]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.sentinels = sentinels

    def discover_master(self, service_name: str) -> Any:
        """Host and port. Raises Lasting where Sentinels answer that they know no such name, or what each of them answers."""
        try:
            return super().discover_master(service_name)  # type: ignore[no-untyped-call]
        except MasterNotFoundError as error:
            failure: Exception = error
        for sentinel in self.sentinels:
            try:
                if service_name not in sentinel.sentinel_masters():
                    raise Lasting("the Sentinels know no primary of that name; the URL ends with one that they know")
                break
            except (ConnectionError, TimeoutError) as error:
                failure = error
        raise failure  # here, since in a handler it would lose its own context


def _greeting(host: str, port: int) -> str:
    """What a server says to a client that only connects; one that refuses us may have closed before its words were read."""
    with suppress(OSError), socket.create_connection((host, port), PROBE_SECONDS) as plain:
        plain.settimeout(GREETING_SECONDS)
        return plain.recv(1024).decode("ascii", "replace")
    return ""


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a server that closed a connection of plain text wanted TLS; nothing is sent but a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _speaks_plain_text(host: str, port: int) -> bool:
    """Whether a server that did not take up a TLS handshake answers a PING."""
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as plain:
            plain.sendall(b"PING\r\n")
            return plain.recv(1) in (b"+", b"-")
    except OSError:
        return False
