"""One at a time for each key, and whoever waits holds no thread meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


class Turns:
    """Locks by key that last as long as somebody wants them. For the event loop's thread.

    A set whose long merge is under way would otherwise take one worker thread for each call that waits for it, until none
    were left for other sets.
    """

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    async def hold(self, key: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do ``work`` in a turn that lasts until it is done, though the caller be cancelled: its thread goes on regardless."""
        async with self.of(key):
            running = asyncio.ensure_future(work())
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                with suppress(Exception):  # nobody is there to be told
                    await running
                raise

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """The block in which no other has ``key``."""
        turn = self._turns.setdefault(key, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[key]
