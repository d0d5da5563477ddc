"""Worker threads for calls. No principal gets more than its share: its calls may all be waiting for a Redis that hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


class SharedWorkers:
    """Runs work in an executor of ``threads`` threads, of one principal in at most half of them. For the event loop's thread.

    Everybody, where nobody is asked who calls, may have all of them.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._share = max(1, threads // 2)
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._using: Counter[str] = Counter()

    async def run(self, principal: str, work: Callable[..., Result], *arguments: object) -> Result:
        """The result of ``work``, or what it raised. Who goes away meanwhile keeps the thread until it is done."""
        loop = asyncio.get_running_loop()
        if not principal:
            return await loop.run_in_executor(self._executor, work, *arguments)
        share = self._shares.setdefault(principal, asyncio.Semaphore(self._share))
        self._using[principal] += 1
        try:
            await share.acquire()
        except BaseException:
            self._forget(principal)
            raise

        def give_back() -> None:
            share.release()
            self._forget(principal)

        try:
            future = self._executor.submit(work, *arguments)
        except BaseException:
            give_back()
            raise

        def done(_: object) -> None:
            with suppress(RuntimeError):  # the service has stopped
                loop.call_soon_threadsafe(give_back)

        future.add_done_callback(done)
        return await asyncio.wrap_future(future)

    def _forget(self, principal: str) -> None:
        self._using[principal] -= 1
        if not self._using[principal]:
            del self._using[principal], self._shares[principal]
