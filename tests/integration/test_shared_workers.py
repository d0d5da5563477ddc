"""Worker threads are shared: who fills its own half leaves the others theirs, also when it goes away without waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from veilset_server.rpc.shares import SharedWorkers

THREADS = 4


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """As the service's, with few threads."""
    with ThreadPoolExecutor(THREADS) as made:
        yield made


class Blocked:
    """Work that waits until it is let go; counts how much of it runs."""

    def __init__(self) -> None:
        self.running = 0
        self._lock = threading.Lock()
        self.go = threading.Event()

    def __call__(self, answer: int) -> int:
        with self._lock:
            self.running += 1
        assert self.go.wait(60)
        return answer


async def until(running: int, work: Blocked) -> None:
    """Wait until so many threads are in it."""
    while work.running < running:
        await asyncio.sleep(0.001)


def test_nobody_gets_more_than_half(executor: ThreadPoolExecutor) -> None:
    """However many calls it makes; another's work is done meanwhile, and in the end all of it is."""

    async def play() -> None:
        workers, work = SharedWorkers(executor, THREADS), Blocked()
        greedy = [asyncio.ensure_future(workers.run("greedy", work, number)) for number in range(20)]
        await until(THREADS // 2, work)
        for number in range(50):
            assert await workers.run("modest", lambda value: value, number) == number
        assert work.running == THREADS // 2
        work.go.set()
        assert await asyncio.gather(*greedy) == list(range(20))
        await asyncio.sleep(0)
        assert not workers._shares

    asyncio.run(play())


def test_who_goes_away_keeps_its_threads_until_they_are_done(executor: ThreadPoolExecutor) -> None:
    """Else a caller that resets its calls would get two new threads each time."""

    async def play() -> None:
        workers, work = SharedWorkers(executor, THREADS), Blocked()
        for _ in range(3):
            gone = [asyncio.ensure_future(workers.run("greedy", work, number)) for number in range(10)]
            await until(THREADS // 2, work)
            await asyncio.sleep(0.01)
            for call in gone:
                call.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
        assert work.running == THREADS // 2
        assert await workers.run("modest", lambda: "served") == "served"
        work.go.set()
        assert await workers.run("greedy", lambda: "served again") == "served again"
        while workers._shares:
            await asyncio.sleep(0.001)

    asyncio.run(play())


def test_what_the_work_raises_is_raised(executor: ThreadPoolExecutor) -> None:
    """And gives the share back."""

    async def play() -> None:
        workers = SharedWorkers(executor, THREADS)
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                await workers.run("somebody", lambda: 1 // 0)
        assert await workers.run("", lambda: "everybody") == "everybody"

    asyncio.run(play())
