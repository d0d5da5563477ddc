"""Work is shared out: one caller's many hold up another's single one by what has begun, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from harness.programs import wait_until
from veilset.errors import LimitExceeded
from veilset_server.rpc.allowances import MAX_PLANS_OF_ONE, MAX_PLANS_WAITING, FairSlots, plan_slots

PLACES = 4


class Desk:
    """Threads that do work in places; each waits there until it is let go. ``done`` has the keys in order of their ends."""

    def __init__(self, shares: FairSlots) -> None:
        self.shares = shares
        self.done: list[str] = []
        self.at_work: list[str] = []
        self.go = threading.Event()
        self._threads = ThreadPoolExecutor(200)

    def ask(self, key: str) -> Future[None]:
        """One piece of work; returns once it has a place or waits for one."""
        wanted = len(self.shares)
        asked = self._threads.submit(self._work, key)
        wait_until(lambda: len(self.shares) > wanted or asked.done())
        return asked

    def _work(self, key: str) -> None:
        with self.shares.place(key):
            self.at_work.append(key)
            assert self.go.wait(60)
            self.done.append(key)

    def close(self) -> None:
        """Let all go."""
        self.go.set()
        self._threads.shutdown()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Four places, two for one caller."""
    made = Desk(FairSlots(PLACES, PLACES // 2))
    yield made
    made.close()


def test_one_caller_gets_no_more_than_its_share(desk: Desk) -> None:
    """However much it asks for; another's work is done meanwhile, and in the end all of it is."""
    asked = [desk.ask("greedy") for _ in range(20)]
    for _ in range(50):
        with desk.shares.place("modest"):
            assert desk.at_work == ["greedy"] * (PLACES // 2)
    desk.go.set()
    for each in asked:
        each.result(60)
    assert len(desk.shares) == 0
    assert not desk.shares._held
    assert not desk.shares._waiting


def test_a_free_place_goes_to_who_holds_fewest() -> None:
    """Not to who came first: one of ``late`` is served before the many of the others that waited before it."""
    desk = Desk(FairSlots(1, 1))
    first = desk.ask("a")
    rest = [desk.ask(key) for key in (*["a"] * 5, *["b"] * 5, "late")]
    desk.go.set()
    for each in (first, *rest):
        each.result(60)
    assert desk.done[:4] == ["a", "b", "late", "a"]
    desk.close()


def test_work_that_fails_gives_its_place_back(desk: Desk) -> None:
    """More often than there are places."""
    for _ in range(10):
        with pytest.raises(ZeroDivisionError), desk.shares.place("somebody"):
            1 // 0  # noqa: B018


@pytest.mark.parametrize("greedy", [("reader",), ("reader", "other", "third")])
def test_a_plan_waits_for_at_most_one_of_each(greedy: tuple[str, ...]) -> None:
    """However many they asked for before."""
    desk = Desk(plan_slots())
    asked = [desk.ask(name) for name in greedy for _ in range(MAX_PLANS_OF_ONE)]
    asked.append(desk.ask("admin"))
    desk.go.set()
    for each in asked:
        each.result(60)
    assert desk.done.index("admin") <= len(greedy)
    desk.close()


@pytest.mark.parametrize("names", [["reader"] * MAX_PLANS_OF_ONE, [str(n) for n in range(MAX_PLANS_WAITING)]])
def test_there_is_no_long_queue_of_plans(names: list[str]) -> None:
    """Neither of one caller nor in all; once it is done there is room again."""
    desk = Desk(plan_slots())
    asked = [desk.ask(name) for name in names]
    with pytest.raises(LimitExceeded) as refused:
        desk.ask(names[0]).result(60)
    assert refused.value.details["limit"] == str(len(names))
    desk.go.set()
    for each in asked:
        each.result(60)
    desk.ask(names[0]).result(60)
    desk.close()
