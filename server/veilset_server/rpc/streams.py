"""How clients' streams end when nobody cancels them: by silence, or because the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from veilset.errors import Unavailable

Request = TypeVar("Request")


class ClientStreams:
    """All streams of one server. For the event loop's thread.

    idle_seconds: how long a stream may stay silent; then it is aborted and can be resumed.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._draining = asyncio.Event()
        self._last_call = float("inf")
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()

    def drain(self, seconds: float) -> None:
        """From now on a stream is asked to come back as soon as it waits for its producer; one whose producer keeps
        sending may go on to its end, for ``seconds`` at most. Either way what it acknowledged stays, and it can be resumed."""
        self._last_call = asyncio.get_running_loop().time() + seconds
        self._draining.set()

    @contextmanager
    def open(self) -> Iterator[None]:
        """The block in which a stream holds something."""
        self._open += 1
        self._none_open.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def closed(self) -> None:
        """Wait until no stream holds anything: gRPC does not wait for what a cancelled one still has to let go."""
        await self._none_open.wait()

    async def next(self, requests: AsyncIterator[Request]) -> Request | None:
        """The next message, None at the end. Raises Unavailable where the service drains or the stream is silent."""
        if asyncio.get_running_loop().time() > self._last_call:
            raise _draining()
        message = asyncio.ensure_future(anext(requests, None))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((message, draining), timeout=self._idle_seconds, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            if draining.done():
                raise _draining()
            raise Unavailable(
                f"upload: silent for {self._idle_seconds:g} s; resume it with the same upload id", kind="IDLE"
            )
        finally:
            draining.cancel()
            message.cancel()


def _draining() -> Unavailable:
    return Unavailable("service: shutting down; resume the upload with the same upload id", kind="DRAINING")
