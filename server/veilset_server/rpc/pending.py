"""A charged release on its way to readers, and a caller who waits for it: on the event loop, not in a worker thread.

Redis may refuse for minutes; as many calls as there are threads, all repeats of one request, would keep everybody else out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from veilset.errors import StorageFull, StoreMisconfigured, Unavailable
from veilset_server.ports import Ledger
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.turns import Turns
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.delivery_worker import DeliveryWorker

Run = Callable[..., Awaitable[Any]]
"""(work, *arguments) → its result, from a worker thread."""


class PendingReleases:
    """Delivers releases for callers who wait. For the event loop's thread."""

    def __init__(self, ledger: Ledger, delivery: Delivery, worker: DeliveryWorker) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._worker = worker
        self._turns = Turns()

    async def deliver(self, release: StoredRelease, run: Run, seconds: float) -> StoredRelease:
        """The release as readers see it, or as it is once Redis did not take it for so long, or needs somebody to act."""
        if release.state is not ReleaseState.PENDING:
            return release
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(until):  # at the end of which a delivery that has begun is still waited for
                await self._turns.hold(release.set_name, partial(self._deliver, release, run))
        except StoreMisconfigured:  # charged all the same, but nothing to wait for: somebody has to act first
            self._worker.wake()
            return await self._look(release, run)
        except (Unavailable, StorageFull, TimeoutError):  # it is charged: whatever delays it, the answer is the release
            self._worker.wake()
        return await self._wait(release, run, until)

    async def _deliver(self, release: StoredRelease, run: Run) -> None:
        current = await self._look(release, run)  # whose turn came before may have done it
        if current.state is ReleaseState.PENDING and not self._delivery.stopping:
            await run(self._delivery.deliver_pending, release.set_name)

    async def _wait(self, release: StoredRelease, run: Run, until: float) -> StoredRelease:
        loop, moved = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the service has stopped
                loop.call_soon_threadsafe(moved.set)

        with self._delivery.listening(release.set_name, tell):
            while True:
                moved.clear()
                current = await self._look(release, run)
                if current.state is not ReleaseState.PENDING or self._delivery.stopping or loop.time() >= until:
                    return current
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await moved.wait()

    async def _look(self, release: StoredRelease, run: Run) -> StoredRelease:
        found: StoredRelease = await run(self._ledger.get_release, release.set_name, release.sequence)
        return found
