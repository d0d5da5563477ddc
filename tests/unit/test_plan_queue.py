"""Searches for a plan: one at a time, and a principal's many hold another's single one up by one search."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from veilset.errors import LimitExceeded
from veilset_server.rpc.planning import MAX_PLANS_OF_ONE, MAX_PLANS_WAITING, Planner


@pytest.fixture
def planner() -> Iterator[Planner]:
    """Made anew for each test."""
    made = Planner()
    yield made
    made.close()


class Searches:
    """Work that waits until it is let go, and the order in which it was done."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.done: list[str] = []

    def __call__(self, name: str) -> str:
        self.begun.set()
        assert self.go.wait(60)
        self.done.append(name)
        return name


async def settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("greedy", [("reader",), ("reader", "other", "third")])
def test_another_waits_for_at_most_one_of_each(planner: Planner, greedy: tuple[str, ...]) -> None:
    """However many they asked for before it did."""

    async def play() -> list[str]:
        searches = Searches()
        tasks = [
            asyncio.ensure_future(planner.run(name, searches, name)) for name in greedy for _ in range(MAX_PLANS_OF_ONE)
        ]
        await settled()
        tasks.append(asyncio.ensure_future(planner.run("admin", searches, "admin")))
        await settled()
        searches.go.set()
        await asyncio.gather(*tasks)
        return searches.done

    done = asyncio.run(play())
    assert done.index("admin") <= len(greedy)
    assert len(done) == len(greedy) * MAX_PLANS_OF_ONE + 1


def test_who_goes_away_does_not_get_a_second_place(planner: Planner) -> None:
    """A search that has begun goes on; the next of the same principal waits for its end, or it would fill the queue."""

    async def play() -> list[str]:
        searches = Searches()
        for _ in range(5):
            gone = asyncio.ensure_future(planner.run("reader", searches, "reader"))
            await settled()
            gone.cancel()
            await settled()
        rest = [asyncio.ensure_future(planner.run(name, searches, name)) for name in ("reader", "admin")]
        await settled()
        searches.go.set()
        await asyncio.gather(*rest)
        return searches.done

    assert asyncio.run(play()) == ["reader", "admin", "reader"]


@pytest.mark.parametrize(("name", "limit"), [("reader", MAX_PLANS_OF_ONE), ("", MAX_PLANS_WAITING)])
def test_there_is_no_long_queue(planner: Planner, name: str, limit: int) -> None:
    """Neither of one principal nor in all; once it is done there is room again."""

    async def play() -> None:
        searches = Searches()
        tasks = [asyncio.ensure_future(planner.run(name, searches, name)) for _ in range(limit)]
        await settled()
        with pytest.raises(LimitExceeded) as refused:
            await planner.run(name, searches, name)
        assert refused.value.details["limit"] == str(limit)
        searches.go.set()
        await asyncio.gather(*tasks)
        assert await planner.run(name, searches, "again") == "again"

    asyncio.run(play())
