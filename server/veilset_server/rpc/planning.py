"""Searches for a plan take seconds of a processor: one at a time, of each principal one in the queue, and no long queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from veilset.errors import LimitExceeded
from veilset_server.rpc.turns import Turns

MAX_PLANS_WAITING = 64
MAX_PLANS_OF_ONE = 8

Result = TypeVar("Result")


class Planner:
    """Runs searches in a thread of its own. A principal's come one after the other into the queue for it, so that whoever
    asks for one waits for at most one of each other principal, however many those ask for. For the event loop's thread.

    Everybody, where nobody is asked who calls, has the queue.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._asked: Counter[str] = Counter()
        self._turns = Turns()

    def close(self) -> None:
        """Let the thread go."""
        self._executor.shutdown()

    async def run(self, principal: str, work: Callable[..., Result], *arguments: object) -> Result:
        """The result of ``work``, or what it raised. Raises LimitExceeded where too many are waiting."""
        if self._asked.total() >= MAX_PLANS_WAITING:
            raise LimitExceeded(f"plans: {MAX_PLANS_WAITING} are waiting; try again", limit=MAX_PLANS_WAITING)
        if principal and self._asked[principal] >= MAX_PLANS_OF_ONE:
            raise LimitExceeded(f"plans: {MAX_PLANS_OF_ONE} of yours are waiting; try again", limit=MAX_PLANS_OF_ONE)
        self._asked[principal] += 1
        try:
            queued = partial(self._queue, work, *arguments)
            return await (self._turns.hold(principal, queued) if principal else queued())
        finally:
            self._asked -= Counter([principal])

    async def _queue(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
