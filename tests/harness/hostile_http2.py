"""An HTTP/2 client that does what gRPC's own never would: resets at once, half-sent messages, false lengths."""

from __future__ import annotations

import select
import socket
import struct
from functools import partial
from types import TracebackType

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

from harness.patience import SECONDS

Headers = list[tuple[str, str]]
ADD_ELEMENTS = "/veilset.v1.MembershipService/AddElements"
GET_SET = "/veilset.v1.MembershipService/GetSet"
HEALTH = "/grpc.health.v1.Health/Check"


def framed(message: bytes, claimed: int | None = None) -> bytes:
    """A gRPC message with its prefix, which may claim another length."""
    return struct.pack(">BI", 0, len(message) if claimed is None else claimed) + message


class HostileConnection:
    """One connection. ``statuses`` has, by stream, the grpc-status of those that ended; ``resets`` what was reset by the
    server; ``gone`` the error code of its GOAWAY, or None. source: the address it comes from."""

    def __init__(self, address: str, token: str | None = None, seconds: float = SECONDS, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), seconds, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_inbound_headers=False)
        self._http = h2.connection.H2Connection(config)
        self._http.encoder.encode = partial(self._http.encoder.encode, huffman=False)  # type: ignore[method-assign] # else minutes for a megabyte
        self._authorization = [("authorization", f"Bearer {token}")] if token else []
        self.statuses: dict[int, str] = {}
        self.resets: dict[int, int] = {}
        self.gone: int | None = None
        self.closed = False
        self._greeted = False
        self._http.initiate_connection()
        self.flush()
        while not self._greeted and not self.closed:  # until the server's settings are here
            self.read()

    def __enter__(self) -> HostileConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    @property
    def allowed_streams(self) -> int:
        """How many streams the server allows at a time."""
        return int(self._http.remote_settings.max_concurrent_streams)

    def open(self, path: str, more: Headers | None = None, *, end: bool = False) -> int:
        """Begin a call; its stream's number. Sent with the next `flush`."""
        stream = int(self._http.get_next_available_stream_id())
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *self._authorization,
            *(more or []),
        ]
        self._http.send_headers(stream, headers, end_stream=end)
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Some of a call's data, as far as the server's windows allow; waits for them."""
        rest = memoryview(data)
        while True:
            room = min(self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size, len(rest))
            if room or not rest:
                self._http.send_data(stream, bytes(rest[:room]), end_stream=end and room == len(rest))
                rest = rest[room:]
                self.flush()
            if not rest:
                return
            if not room:
                self.read()
            if stream in self.statuses or stream in self.resets or self.gone is not None or self.closed:
                return

    def reset(self, stream: int) -> None:
        """RST_STREAM, CANCEL."""
        self._http.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)

    def flush(self) -> None:
        """Send what is waiting."""
        self.socket.sendall(self._http.data_to_send())

    def read(self, seconds: float = SECONDS) -> bool:
        """Take in what the server says, waiting for it at most so long; whether anything came."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return False
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self._http.receive_data(data):
            match event:
                case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                    for name, value in event.headers:
                        if name in ("grpc-status", b"grpc-status"):
                            self.statuses[event.stream_id] = str(value)
                case h2.events.RemoteSettingsChanged():
                    self._greeted = True
                case h2.events.StreamReset():
                    self.resets[event.stream_id] = int(event.error_code)
                case h2.events.ConnectionTerminated():
                    self.gone = int(event.error_code or 0)
                case h2.events.DataReceived():
                    self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case _:
                    pass
        self.flush()
        return True

    def wait_for(self, stream: int) -> str:
        """The grpc-status of a call, or how else it ended."""
        while stream not in self.statuses and stream not in self.resets and self.gone is None:
            if not self.read(5.0):
                return "closed" if self.closed else "silence"
        if stream in self.statuses:
            return self.statuses[stream]
        return f"reset {self.resets[stream]}" if stream in self.resets else f"goaway {self.gone}"
