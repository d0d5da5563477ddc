"""A publish that waits for Redis: it takes no worker thread, is told when the release moves on, and is answered when the service
stops: PENDING, which the next start delivers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from veilset.errors import StoreMisconfigured, Unavailable, VeilsetError
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.pending import PendingReleases
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.delivery_worker import DeliveryWorker

FOREVER = 1e6
CALLS, THREADS = 40, 2


class Refusing(MemoryStore):
    """A store that does not take what it is given, for as long as ``refusal`` is set; counts how often it was asked."""

    refusal: VeilsetError | None = None
    asked = 0

    def upload(self, *arguments: Any) -> None:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        super().upload(*arguments)

    def expire(self, *arguments: Any) -> None:
        pass


class Place:
    """A charged release that the store refuses, and callers who ask for it in few threads. The worker does not run."""

    def __init__(self, folder: Path, refusal: VeilsetError) -> None:
        self.store = Refusing(folder / LEDGER_NAME)
        self.desk = Desk(folder, MemoryAnchor(), self.store)
        self.desk.create()
        self.desk.upload("one", names(100))
        self.release = self.desk.publish("r")
        self.store.refusal = refusal
        worker = DeliveryWorker(self.desk.delivery, FOREVER, lambda: None)
        self.pending = PendingReleases(self.desk.ledger, self.desk.delivery, worker)
        self.threads = ThreadPoolExecutor(THREADS)

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        """In one of the few threads."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def wait(self, seconds: float = FOREVER) -> StoredRelease:
        """A caller."""
        return await self.pending.deliver(self.release, self.run, seconds)

    async def all_wait(self) -> list[asyncio.Task[StoredRelease]]:
        """So many callers, once each of them has been refused and waits."""
        waiting = [asyncio.ensure_future(self.wait()) for _ in range(CALLS)]
        while len(self.desk.delivery._listeners) < CALLS:
            await asyncio.sleep(0.001)
        return waiting


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A store that is away."""
    made = Place(tmp_path, Unavailable("release store: away"))
    yield made
    made.threads.shutdown()
    made.desk.close()


def test_whoever_waits_takes_no_thread(place: Place) -> None:
    """Many times more calls than threads wait, and other work is done at once; delivered, all of them hear of it."""

    async def play() -> None:
        waiting = await place.all_wait()
        for number in range(100):
            assert await place.run(lambda value: value, number) == number
        assert not any(task.done() for task in waiting)
        place.store.refusal = None
        await place.run(place.desk.delivery.deliver_pending)
        assert {release.state for release in await asyncio.gather(*waiting)} == {ReleaseState.PUBLISHED}
        assert place.desk.delivery._listeners == []

    asyncio.run(play())
    assert place.desk.account().charges == 1


def test_a_store_that_hangs_takes_one_thread_a_set(place: Place) -> None:
    """The others wait for their turn, which takes none."""
    hung, go = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        assert go.wait(60)

    async def play(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(place.desk.delivery, "deliver_pending", hang)
        waiting = [asyncio.ensure_future(place.wait()) for _ in range(CALLS)]
        await place.run(hung.wait, 60)
        for number in range(100):
            assert await place.run(lambda value: value, number) == number
        place.desk.delivery.stop_waiting()
        go.set()
        assert {release.state for release in await asyncio.gather(*waiting)} == {ReleaseState.PENDING}

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(play(patch))


@pytest.mark.parametrize("before", [True, False], ids=["it waits already", "it comes to wait"])
def test_nobody_waits_in_a_service_that_stops(place: Place, before: bool) -> None:
    """What is charged stays charged, and pending."""

    async def play() -> None:
        if before:
            waiting = await place.all_wait()
            place.desk.delivery.stop_waiting()
        else:
            place.desk.delivery.stop_waiting()
            waiting = [asyncio.ensure_future(place.wait())]
        assert {release.state for release in await asyncio.gather(*waiting)} == {ReleaseState.PENDING}

    asyncio.run(play())
    assert place.desk.account().charges == 1


def test_no_time_to_wait(place: Place) -> None:
    """One attempt is made whatever the time: where the store takes it, it is delivered."""
    assert asyncio.run(place.wait(0)).state is ReleaseState.PENDING
    assert place.store.asked == 1
    place.store.refusal = None
    assert asyncio.run(place.wait(0)).state is ReleaseState.PUBLISHED


def test_nobody_waits_where_somebody_has_to_act(place: Place) -> None:
    """A setting of the store has to be changed: answered at once."""
    place.store.refusal = StoreMisconfigured("release store: wrong command set")
    assert asyncio.run(place.wait()).state is ReleaseState.PENDING
