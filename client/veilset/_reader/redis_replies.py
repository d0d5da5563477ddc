"""Reading what Redis answers: what is larger than anything asked for is refused before it is in memory, and what never ends.

redis-py holds whatever length a reply claims, so a single `$1500000000` would take 1.5 GB of a reader, or of the service.
Here all that answers one sending (a command or a pipeline), and each message of a channel, has one allowance. RESP2 only, by
redis-py's own parser in Python: hiredis, which would bound nothing, is not used even where it is installed.
"""

from __future__ import annotations

import time
from typing import Any

from redis._parsers import _RESP2Parser
from redis._parsers.socket import SYM_CRLF, SocketBuffer
from redis.exceptions import InvalidResponse

from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.signing import MAX_MANIFEST_BYTES

MAX_STRING_BYTES = MAX_MANIFEST_BYTES + CHUNK_BYTES
"""The longest string; what we ask for is a manifest or a chunk, and a byte more of it."""
MAX_ANSWER_BYTES = 16 << 20
"""Of all answers to one sending: one such string, or what a cluster of thousands of slot ranges says of itself."""
PATIENCE_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 4096
"""An answer may take that long, and longer as long as it comes at least so fast: a timeout for each piece would not end one
that comes byte by byte."""
MAX_LINE_BYTES = 1 << 16
MAX_DEPTH = 32

_ITEM_BYTES = 64  # what Python holds for an item, beside its text
_COMPACT_BYTES = 1 << 20


class _BoundedBuffer(SocketBuffer):
    """Bytes from the socket, as long as there is an allowance for them. Raises InvalidResponse."""

    def refill(self) -> None:
        """A new allowance."""
        self._left = MAX_ANSWER_BYTES
        self._received = 0
        self._begun = time.monotonic()

    def readline(self, *arguments: Any, **options: Any) -> bytes:
        """A line without its end. Of a string or an array, that its length or count is within bounds."""
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
        """A string of ``length`` bytes."""
        if not 0 <= length <= MAX_STRING_BYTES:
            raise InvalidResponse("a string that is too long")
        self._spend(length)
        with_end = length + len(SYM_CRLF)
        while self.unread_bytes() < with_end:
            self._receive(*arguments, **options)
        return self._buffer.read(with_end)[:length]

    def purge(self) -> None:
        """Let go of what was read, also where more is there already: a channel may never fall silent."""
        if self.unread_bytes() == 0 or self._buffer.tell() > _COMPACT_BYTES:
            rest = self._buffer.read()
            self._buffer.seek(0)
            self._buffer.truncate()
            self._buffer.write(rest)
            self._buffer.seek(0)

    def _receive(self, *arguments: Any, **options: Any) -> None:
        """What is there, or comes within the socket's timeout."""
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
        """A new allowance, if there is a connection."""
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
