"""A publish that waits for Redis: it holds no place among those at work, is told when the release moves on, and is answered when
the service stops: PENDING, which the next start delivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from harness.programs import wait_until
from veilset.errors import StoreMisconfigured, Unavailable, VeilsetError
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rpc.allowances import FairSlots
from veilset_server.rpc.call import Call
from veilset_server.rpc.service import PendingReleases
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.delivery import DeliveryWorker

FOREVER = 1e6
CALLS, PLACES = 40, 2


class Context:
    """Of a call whose caller is there."""

    def is_active(self) -> bool:
        return True

    def add_callback(self, _: object) -> bool:
        return True


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
    """A charged release that the store refuses, and callers who ask for it where places are few. The worker does not run."""

    def __init__(self, folder: Path, refusal: VeilsetError) -> None:
        self.store = Refusing(folder / LEDGER_NAME)
        self.desk = Desk(folder, MemoryAnchor(), self.store)
        self.desk.create()
        self.desk.upload("one", names(100))
        self.release = self.desk.publish("r")
        self.store.refusal = refusal
        worker = DeliveryWorker(self.desk.delivery, FOREVER, lambda: None)
        self.shares = FairSlots(PLACES, PLACES)
        self.pending = PendingReleases(self.desk.ledger, self.desk.delivery, worker, self.shares)
        self._threads = ThreadPoolExecutor(CALLS)

    def wait(self, seconds: float = FOREVER) -> StoredRelease:
        """A caller."""
        return self.pending.deliver(self.release, seconds, Call("s", "m", False, (), context=Context()))

    def begin(self, calls: int = CALLS) -> list[Future[StoredRelease]]:
        """So many callers."""
        return [self._threads.submit(self.wait) for _ in range(calls)]

    def all_wait(self) -> list[Future[StoredRelease]]:
        """So many callers, once each of them has been refused and waits."""
        waiting = self.begin()
        wait_until(lambda: len(self.desk.delivery._listeners) == CALLS)
        return waiting

    def close(self) -> None:
        """Let all go."""
        self.desk.delivery.stop_waiting()
        self._threads.shutdown()
        self.desk.close()


def states(waiting: list[Future[StoredRelease]]) -> set[ReleaseState]:
    """What they were answered."""
    return {each.result(60).state for each in waiting}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A store that is away."""
    made = Place(tmp_path, Unavailable("release store: away"))
    yield made
    made.close()


def test_a_caller_who_waits_holds_no_place(place: Place) -> None:
    """Many times more calls than places wait, and other work is done at once; delivered, all of them hear of it."""
    waiting = place.all_wait()
    for _ in range(100):
        with place.shares.place("another"):
            pass
    assert not any(each.done() for each in waiting)
    place.store.refusal = None
    place.desk.delivery.deliver_pending()
    assert states(waiting) == {ReleaseState.PUBLISHED}
    assert place.desk.delivery._listeners == []
    assert place.desk.account().charges == 1


def test_a_store_that_hangs_takes_one_place_a_set(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for their turn, which takes none."""
    hung, go = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        assert go.wait(60)

    monkeypatch.setattr(place.desk.delivery, "deliver_pending", hang)
    waiting = place.begin()
    assert hung.wait(60)
    for _ in range(100):
        with place.shares.place("another"):
            assert len(place.shares) == 2
    place.desk.delivery.stop_waiting()
    go.set()
    assert states(waiting) == {ReleaseState.PENDING}


def test_the_time_to_wait_ends_while_another_hangs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the one that began the delivery waits for its end."""
    hung, go = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        assert go.wait(60)

    monkeypatch.setattr(place.desk.delivery, "deliver_pending", hang)
    first = place.begin(1)
    assert hung.wait(60)
    assert place.wait(0.05).state is ReleaseState.PENDING
    place.desk.delivery.stop_waiting()
    go.set()
    assert states(first) == {ReleaseState.PENDING}


@pytest.mark.parametrize("before", [True, False], ids=["it waits already", "it comes to wait"])
def test_no_caller_waits_in_a_service_that_stops(place: Place, before: bool) -> None:
    """What is charged stays charged, and pending."""
    if before:
        waiting = place.all_wait()
        place.desk.delivery.stop_waiting()
    else:
        place.desk.delivery.stop_waiting()
        waiting = place.begin(1)
    assert states(waiting) == {ReleaseState.PENDING}
    assert place.desk.account().charges == 1


def test_no_time_to_wait(place: Place) -> None:
    """One attempt is made whatever the time: where the store takes it, it is delivered."""
    assert place.wait(0).state is ReleaseState.PENDING
    assert place.store.asked == 1
    place.store.refusal = None
    assert place.wait(0).state is ReleaseState.PUBLISHED


def test_no_caller_waits_where_a_setting_is_wrong(place: Place) -> None:
    """A setting of the store has to be changed: answered at once."""
    place.store.refusal = StoreMisconfigured("release store: wrong command set")
    assert place.wait().state is ReleaseState.PENDING
