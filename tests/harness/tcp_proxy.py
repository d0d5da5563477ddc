"""A TCP proxy that delays, cuts, swallows and refuses what goes through it."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from enum import StrEnum
from types import TracebackType


class Mode(StrEnum):
    """What it does with what the client sends; what the server sends passes, unless the connection is gone.

    PASS. DELAY: each piece 10 ms late. CUT: a little of a big message, then reset. DROP_REPLIES: reset when the reply comes, so
    that the server has done it and the client does not know. BLACK_HOLE: take it and say nothing. REFUSE: reset at once.
    """

    PASS = "pass"  # noqa: S105 - no password
    DELAY = "delay"
    CUT = "cut"
    DROP_REPLIES = "drop replies"
    BLACK_HOLE = "black hole"
    REFUSE = "refuse"


CUT_BYTES = 4096


class TcpProxy:
    """127.0.0.1:port → 127.0.0.1:target, a thread a connection; ``mode`` may change at any time. A context manager.

    ``target`` too, for new connections: as a virtual address does that moves to another machine, while the old one lives.
    source: the address that connections come from.
    """

    def __init__(self, target: int, source: str = "127.0.0.1") -> None:
        self.mode = Mode.PASS
        self.forwarded = 0
        self.target = target
        self._source = source
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ended = threading.Event()

    def __enter__(self) -> TcpProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._listener.close()

    @property
    def url(self) -> str:
        """As a Redis."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        there = ("127.0.0.1", self.target)
        with suppress(OSError), client, socket.create_connection(there, source_address=(self._source, 0)) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ, server)
                selector.register(server, selectors.EVENT_READ, client)
                while not self._ended.is_set():
                    for key, _ in selector.select(0.1):
                        source, sink = key.fileobj, key.data
                        assert isinstance(source, socket.socket)
                        if not self._forward(source, sink, from_client=source is client):
                            return

    def _forward(self, source: socket.socket, sink: socket.socket, *, from_client: bool) -> bool:
        """Whether the connection goes on."""
        data = source.recv(1 << 16)
        mode = self.mode
        if not data or mode is Mode.REFUSE or (mode is Mode.DROP_REPLIES and not from_client):
            return False
        if mode is Mode.BLACK_HOLE:
            return True
        if from_client:
            if mode is Mode.DELAY:
                time.sleep(0.01)
            if mode is Mode.CUT and len(data) > CUT_BYTES:
                sink.sendall(data[:CUT_BYTES])
                return False
            self.forwarded += len(data)
        sink.sendall(data)
        return True
