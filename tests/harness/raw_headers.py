"""Header blocks as no HTTP/2 library would send them, written byte by byte on a socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import product

from harness.patience import SECONDS

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 6, 7, 9
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MOST_FRAME = 16_384

Header = tuple[bytes, bytes]

GOOD: tuple[Header, ...] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/grpc.health.v1.Health/Check"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"raw"),
    (b"grpc-encoding", b"identity"),
    (b"grpc-accept-encoding", b"identity,gzip"),
    (b"grpc-timeout", b"5S"),
    (b"authorization", b"Bearer vst_0"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"x-free", b"anything"),
    (b"x-free-bin", b"AAEC"),
    (b"cookie", b"a=b"),
    (b"grpc-internal-encoding-request", b"gzip"),
    (b"grpc-previous-rpc-attempts", b"1"),
    (b"host", b"localhost"),
)
"""A health check with every header that gRPC or the service looks at."""

VALUES: dict[str, bytes] = {
    "not UTF-8": b"/\xff/x",
    "half a character": b"/veilset.v1.MembershipService/\xe2\x82",
    "surrogate": b"\xed\xa0\x80",
    "NUL": b"/a\x00b",
    "line break": b"a\r\nb: c",
    "empty": b"",
    "64 KiB": b"/" + b"a" * (64 << 10),
    "all bytes": bytes(range(256)),
    "long number": b"9" * 30 + b"H",
}


def cases() -> Iterator[tuple[str, list[Header]]]:
    """What is wrong, and the whole header block with that."""
    for (name, _), (what, value) in product(GOOD, VALUES.items()):
        yield f"{name.decode()} {what}", [(other, value if other == name else right) for other, right in GOOD]
    for name, value in GOOD:
        rest = [header for header in GOOD if header[0] != name]
        yield f"{name.decode()} upper case", [*rest, (name.upper(), value)]
        yield f"{name.decode()} twice", [*GOOD, (name, value)]
        yield f"{name.decode()} twice, otherwise", [*GOOD, (name, b"/\xff")]
        yield f"{name.decode()} missing", rest
        yield f"{name.decode()} last", [*rest, (name, value)]
    for name in (b"", b":", b":status", b":free", b"\xff", b"a\x00b", b"a b", b"x" * (64 << 10), b"grpc-status"):
        yield f"name {name[:20]!r}", [*GOOD, (name, b"a")]
    yield "no header", []
    yield "a thousand headers", [*GOOD, *((b"x%d" % number, b"a") for number in range(1000))]


class RawConnection:
    """One connection in plain text. ``statuses`` has the grpc-status of calls, as far as it came in a way that is easy to see."""

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        self._stream = -1
        self._received = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, headers: list[Header], pieces: int = 1, message: bytes = bytes(5)) -> str:
        """A call with these headers in so many frames, and one message; how it ended: answered, reset, goaway or closed."""
        self._stream += 2
        block = b"".join(map(_literal, headers))
        size = min(_MOST_FRAME, max(1, -(-len(block) // pieces)))
        parts = [block[start : start + size] for start in range(0, len(block), size)] or [b""]
        sent = b""
        for number, part in enumerate(parts):
            flags = _END_HEADERS if number == len(parts) - 1 else 0
            sent += _frame(_CONTINUATION if number else _HEADERS, flags, self._stream, part)
        sent += _frame(_DATA, _END_STREAM, self._stream, message)
        try:
            self._socket.sendall(sent)
            return self._end()
        except ConnectionError:
            return "closed"
        except TimeoutError:
            return "silence"

    def _end(self) -> str:
        while True:
            kind, flags, stream, payload = self._frame()
            if kind == _SETTINGS and not flags & _ACK:
                self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _PING and not flags & _ACK:
                self._socket.sendall(_frame(_PING, _ACK, 0, payload))
            elif kind == _GOAWAY:
                return "goaway"
            elif stream == self._stream and kind == _RST_STREAM:
                return "reset"
            elif stream == self._stream and kind in (_HEADERS, _DATA) and flags & _END_STREAM:
                return "answered"

    def _frame(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        return kind, flags, int.from_bytes(head[5:], "big") & 0x7FFF_FFFF, self._take(length)

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError
            self._received += more
        taken, self._received = self._received[:count], self._received[count:]
        return taken


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(header: Header) -> bytes:
    """HPACK: a literal header field that is not indexed, neither part compressed (RFC 7541 section 6.2.2)."""
    return b"\x00" + b"".join(_length(len(part)) + part for part in header)


def _length(number: int) -> bytes:
    """An integer with a prefix of 7 bits (RFC 7541 section 5.1)."""
    if number < 127:
        return bytes([number])
    rest, coded = number - 127, b"\x7f"
    while rest >= 128:
        coded += bytes([rest % 128 + 128])
        rest //= 128
    return coded + bytes([rest])
