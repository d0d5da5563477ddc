"""A Redis that has been taken over: it answers some commands with whatever it likes, and the others as a real one does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from types import TracebackType
from urllib.parse import urlsplit

Answer = Callable[[], Iterator[bytes]]

MALFORMED: dict[str, bytes] = {
    "a number": b":1\r\n",
    "a negative number": b":-1\r\n",
    "a word": b"+OK\r\n",
    "an error": b"-ODD happens\r\n",
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "an empty string": b"$0\r\n\r\n",
    "a short message": b"*1\r\n$7\r\nmessage\r\n",
    "a short pmessage": b"*2\r\n$8\r\npmessage\r\n$1\r\nx\r\n",
    "a channel that is an array": b"*3\r\n$7\r\nmessage\r\n*0\r\n$1\r\nx\r\n",
    "a kind that is an array": b"*3\r\n*1\r\n:1\r\n$1\r\nx\r\n$1\r\nx\r\n",
    "a kind that is nothing": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    "subscribed to an array": b"*3\r\n$9\r\nsubscribe\r\n*1\r\n:1\r\n:1\r\n",
    "subscribed no number of times": b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n",
    "unsubscribed from an array": b"*3\r\n$11\r\nunsubscribe\r\n*0\r\n:0\r\n",
    "an error within": b"*3\r\n-ODD one\r\n-ODD two\r\n-ODD three\r\n",
    "not UTF-8": b"*3\r\n$7\r\n\xff\xfe\xfd\xff\xfe\xfd\xff\r\n$1\r\n\xff\r\n:1\r\n",
    "no type": b"hello\r\n",
    "an empty line": b"\r\n",
    "a length that is no number": b"$x\r\n",
    "a negative length": b"$-7\r\n",
    "a length of 5000 digits": b"$" + b"9" * 5000 + b"\r\n",
    "a number of 5000 digits": b":" + b"9" * 5000 + b"\r\n",
    "a count that is no number": b"*x\r\n",
    "a count of 10^9": b"*1000000000\r\n",
    "a string of 1.5 GB": b"$1500000000\r\n",
    "arrays within arrays": b"*1\r\n" * 5000 + b":1\r\n",
    "a map of RESP3": b"%1\r\n+a\r\n+b\r\n",
    "a push of RESP3": b">2\r\n+a\r\n+b\r\n",
}


def says(data: bytes) -> Answer:
    """Answer with these bytes."""
    return lambda: iter([data])


def pours(begin: bytes, again: bytes, most: int) -> Answer:
    """Answer with ``begin``, and then ``again`` and again, ``most`` bytes in all or for as long as the client takes them."""
    piece = again * max(1, (1 << 18) // len(again))

    def answer() -> Iterator[bytes]:
        yield begin
        yield from repeat(piece, most // len(piece))

    return answer


def trickles(begin: bytes, again: bytes, pause_seconds: float) -> Answer:
    """Answer with ``begin``, and then ``again`` and again without end, each after a pause that is no timeout."""

    def answer() -> Iterator[bytes]:
        yield begin
        while True:
            time.sleep(pause_seconds)
            yield again

    return answer


class HostileRedis:
    """127.0.0.1:port before the real ``target`` URL, a thread a connection. A context manager.

    answers: what it says in place of the real answer, by the command's name in capitals. ``asked`` counts those it gave, ``sent``
    the bytes of real answers.
    """

    def __init__(self, target: str) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked = self.sent = 0
        self._target = ("127.0.0.1", urlsplit(target).port or 0)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """As a Redis."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> HostileRedis:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for ended in (self._listener, *self._open):
            with suppress(OSError):
                ended.shutdown(socket.SHUT_RDWR)
            ended.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for serve in (self._ask, self._answer):
                    threading.Thread(target=serve, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client, server:
            while data := client.recv(1 << 16):
                words = data.upper().split(b"\r\n")
                answer = next((found for name, found in self.answers.items() if name.encode() in words), None)
                if answer is None:
                    server.sendall(data)
                    continue
                self.asked += 1
                for piece in answer():
                    client.sendall(piece)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                self.sent += len(data)
                client.sendall(data)
