"""Connections to Redis: bounded replies, a changed server behind the same name is found, a wrong scheme is named.

redis-py reads a reply of whatever length it claims, so a single `$1500000000` would take 1.5 GB of a reader or of the
service. Here all answers to one sending (a command or a pipeline), and each message of a channel, have one allowance,
so that what is larger is refused before it is in memory, and what never ends is cut off. RESP2 only, by redis-py's own
parser in Python: hiredis, which has no bounds, is not used even where it is installed. This module takes a third of a
second to import, as redis-py does.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from redis._parsers import _RESP2Parser
from redis._parsers.socket import SYM_CRLF, SocketBuffer
from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,  # noqa: A004 - redis-py's name
    InvalidResponse,
    MasterDownError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004
)
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection

from veilset._reader.redis_client import mend_of
from veilset._reader.redis_url import PROTOCOL
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.signing import MAX_MANIFEST_BYTES

MAX_STRING_BYTES = MAX_MANIFEST_BYTES + CHUNK_BYTES
"""The longest string: we ask for a manifest or a chunk, and one byte more."""
MAX_ANSWER_BYTES = 16 << 20
"""All answers to one sending: one such string, or the description of a cluster with thousands of slot ranges."""
PATIENCE_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 4096
"""An answer may take `PATIENCE_SECONDS`, and longer while it comes at this speed: a timeout for each piece would not end one
that comes byte by byte."""
MAX_LINE_BYTES = 1 << 16
MAX_DEPTH = 32

_ITEM_BYTES = 64  # what Python needs for an item, its text aside
_COMPACT_BYTES = 1 << 20

RESOLVE_SECONDS = 5.0
"""How long the addresses of a name are used before they are looked up again."""

UNRESOLVED_SECONDS = 60.0
"""The same if the name cannot be resolved."""

PROBE_SECONDS = 2.0
GREETING_SECONDS = 0.5


class _BoundedBuffer(SocketBuffer):
    """Bytes from the socket, as long as there is an allowance for them. Raises InvalidResponse."""

    def refill(self) -> None:
        """Start a new allowance, for the answers to what is sent next."""
        self._left = MAX_ANSWER_BYTES
        self._received = 0
        self._begun = time.monotonic()

    def readline(self, *arguments: Any, **options: Any) -> bytes:
        """A line without its end; the length of a string or the count of an array is checked."""
        line: bytes = self._buffer.readline(MAX_LINE_BYTES)
        while not line.endswith(SYM_CRLF):
            if len(line) >= MAX_LINE_BYTES:
                raise InvalidResponse("a line that is too long")
            self._receive(*arguments, **options)
            line += self._buffer.readline(MAX_LINE_BYTES - len(line))
        self._spend(_ITEM_BYTES + len(line))
        line = line[:-2]
        if line[:1] == b"*" and int(line[1:]) * _ITEM_BYTES > self._left:
            raise InvalidResponse("an array that is too long")
        return line

    def read(self, length: int, *arguments: Any, **options: Any) -> bytes:
        """A string of ``length`` bytes, if that is allowed."""
        if not 0 <= length <= MAX_STRING_BYTES:
            raise InvalidResponse("a string that is too long")
        self._spend(length)
        with_end = length + len(SYM_CRLF)
        while self.unread_bytes() < with_end:
            self._receive(*arguments, **options)
        return self._buffer.read(with_end)[:length]

    def purge(self) -> None:
        """Drop what was read, even if more has arrived already: a channel may never be silent."""
        if self.unread_bytes() == 0 or self._buffer.tell() > _COMPACT_BYTES:
            rest = self._buffer.read()
            self._buffer.seek(0)
            self._buffer.truncate()
            self._buffer.write(rest)
            self._buffer.seek(0)

    def _receive(self, *arguments: Any, **options: Any) -> None:
        """Read what has arrived, or arrives within the socket's timeout."""
        before = self.unread_bytes()
        self._read_from_socket(*arguments, **options)
        self._received += self.unread_bytes() - before
        allowed = PATIENCE_SECONDS + self._received / SLOWEST_BYTES_PER_SECOND
        if time.monotonic() - self._begun > allowed:
            raise InvalidResponse("an answer that is too slow")

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise InvalidResponse("an answer that is too long")


class BoundedParser(_RESP2Parser):
    """RESP2 from a bounded buffer, of bounded depth."""

    _depth = 0

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._buffer = _BoundedBuffer(connection._sock, self.socket_read_size, connection.socket_timeout)
        self._buffer.refill()
        connection.answered = connection.asked = False

    def refill(self) -> None:
        """Start a new allowance, if there is a connection."""
        if self._buffer is not None:
            self._buffer.refill()

    def _read_response(self, *arguments: Any, **options: Any) -> Any:
        if self._depth >= MAX_DEPTH:
            raise InvalidResponse("an answer that is too deep")
        self._depth += 1
        try:
            return super()._read_response(*arguments, **options)
        finally:
            self._depth -= 1


class Lasting(RedisError):
    """A lasting cause that a probe has found; ``mend`` says what to do."""

    def __init__(self, mend: str) -> None:
        super().__init__(mend)
        self.mend = mend


class _Bounded:
    """A mixin for redis-py's connections: bounded answers, and the cause of a refused connection."""

    _parser: BoundedParser
    answered = False
    """Whether the server has answered since we connected; if it never does, the scheme may be wrong."""
    asked = False
    """Whether anything was sent since we connected."""

    def set_parser(self, parser_class: Any) -> None:
        """Use our parser, with the error classes of the one that is asked for: a cluster's has more."""
        bounded = type("BoundedParser", (BoundedParser,), {"EXCEPTION_CLASSES": parser_class.EXCEPTION_CLASSES})
        super().set_parser(bounded)  # type: ignore[misc]

    def can_read(self, *arguments: Any, **options: Any) -> bool:
        """Whether an answer has arrived. One that comes before anything was sent is a refusal, and raised."""
        there = bool(super().can_read(*arguments, **options))  # type: ignore[misc]
        if there and not self.asked:
            self.read_response()
        return there

    def send_packed_command(self, *arguments: Any, **options: Any) -> None:
        """Send, and start the allowance of the answers."""
        try:
            super().send_packed_command(*arguments, **options)  # type: ignore[misc]
        except ConnectionError as error:
            self._ask_further(error)
            raise
        self.asked = True
        self._parser.refill()  # after sending, which may connect first

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """One answer. A channel sends messages without end for one subscription, so each has an allowance of its own."""
        if options.get("push_request"):
            self._parser.refill()
        try:
            response = super().read_response(*arguments, **options)  # type: ignore[misc]
        except (ReadOnlyError, MasterDownError, BusyLoadingError):
            self.mark_for_reconnect()  # type: ignore[attr-defined]  # another server may be the primary now
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
        """Probe why the server does not answer. Raises Lasting."""


class _BoundedConnection(_Bounded, Connection):
    def find_cause(self) -> None:
        if mend := mend_of(_greeting(self.host, self.port)):
            raise Lasting(mend) from None
        if _speaks_tls(self.host, self.port):
            raise Lasting("it speaks TLS, and the URL says plain text; give a rediss:// URL") from None


class _BoundedTlsConnection(_Bounded, SSLConnection):
    def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
        """The handshake has the timeout of connecting: a server of plain text may wait for ever for the rest of it."""
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
        """A client certificate is refused only after the handshake, and a reset may come before the reason is read; so we
        connect once more and send nothing."""
        with suppress(TimeoutError, socket.timeout), self._connect() as connection:  # type: ignore[no-untyped-call]
            connection.settimeout(PROBE_SECONDS)
            if not connection.recv(1):
                raise Lasting("it ends the connection after the handshake; it may ask for another client certificate")


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
    """A pool of connections with bounded replies; for single servers and for the nodes of a cluster.

    If one of them finds that the server is no longer the primary, or the host's name has another address, the idle ones
    are closed, so that the next command connects anew.
    """

    def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
        self._addresses: frozenset[str] = frozenset()
        self._look_again = 0.0
        bounded = _BOUNDED.get(connection_class, connection_class)
        super().__init__(connection_class=bounded, **{**options, "protocol": PROTOCOL, "driver_info": None})

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """An idle connection to an address that the name still has, or a new one."""
        host, port = self.connection_kwargs.get("host"), self.connection_kwargs.get("port", 0)
        if host and time.monotonic() >= self._look_again:
            wait = RESOLVE_SECONDS
            try:
                addresses = frozenset(str(entry[4][0]) for entry in socket.getaddrinfo(host, port))
                if self._addresses and addresses != self._addresses:
                    self.disconnect(inuse_connections=False)
                self._addresses = addresses
            except OSError:  # connecting reports it; an open connection goes on, without a look-up at each command
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
    """As `BoundedPool`, for a primary whose address Sentinels give whenever a connection is made."""

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
        """Close all connections, those to the Sentinels too."""
        super().close()
        self.sentinel_manager.close()


class FoundPrimary(Sentinel):
    """redis-py's Sentinel, over our connections, with clear errors if there is no primary."""

    def __init__(self, sentinels: list[Any]) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.sentinels = sentinels

    def discover_master(self, service_name: str) -> Any:
        """Host and port of the primary. Raises Lasting if the Sentinels do not know the name, else the error of the last one."""
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
    """What a server sends to a client that only connects; one that refuses us may close before its text is read."""
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
    """Whether a server that did not answer a TLS handshake answers a PING."""
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as plain:
            plain.sendall(b"PING\r\n")
            return plain.recv(1) in (b"+", b"-")
    except OSError:
        return False
