"""Deleting a set while others work on it: nobody waits in a circle, nothing of it stays, and a new set of its name lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names
from storage_examples import StoppedClock

from harness.patience import SECONDS
from harness.programs import wait_until
from veilset.core.params import Adjacency, PrivacyParameters
from veilset.errors import AlreadyExists, InvalidInput, NotFound
from veilset_server.locks import KeyedLocks
from veilset_server.records import StoredSet
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.sets import SetLimits, SetRequest, Sets

REQUEST = SetRequest(
    "set",
    1000,
    PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE),
    dimensions={"bits": 1 << 16, "hashes": 1},
    budget_epsilon=9.0,
    allow_poor_utility=True,
)


class Store(MemoryStore):
    """With deletion; an upload, or a removal, waits while ``go`` is not set."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.go, self.at_it = threading.Event(), threading.Event()
        self.go.set()
        self.removed: list[int] = []

    def _wait(self) -> None:
        self.at_it.set()
        assert self.go.wait(SECONDS)

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        super().upload(set_name, sequence, manifest, chunks)
        self._wait()

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        self._wait()
        self.removed += [sequence for sequence, _ in sequences]
        self.pointer = 0


class WatchedLocks(KeyedLocks):
    """Notes which kinds of locks a thread holds when it asks for one of ``kind``."""

    held = threading.local()
    nested: set[tuple[str, str]]

    def __init__(self, kind: str, nested: set[tuple[str, str]]) -> None:
        super().__init__()
        self._kind, self.nested = kind, nested

    @contextmanager
    def _held(self, key: Hashable, seconds: float = -1) -> Iterator[None]:
        kinds: list[str] = self.held.__dict__.setdefault("kinds", [])
        self.nested.update((kind, self._kind) for kind in kinds)
        with super()._held(key, seconds):
            kinds.append(self._kind)
            try:
                yield
            finally:
                kinds.pop()


class KeyedLocksOfNobody(KeyedLocks):
    """Not to be asked."""

    def __getitem__(self, key: Hashable) -> AbstractContextManager[None]:
        raise AssertionError(key)


def wanted(locks: KeyedLocks, key: Hashable) -> int:
    """How many threads hold ``key`` or wait for it."""
    return locks._locks[key].wanted if key in locks._locks else 0


class Office:
    """The use cases around one state folder, with those of sets."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / LEDGER_NAME)
        self.desk = desk = Desk(folder, MemoryAnchor(), self.store)
        parts = desk.entropy, StoppedClock(), desk.locks, desk.delivery, desk.guard, SetLimits()
        self.sets = Sets(desk.ledger, desk.runs, desk.artefacts, *parts)

    def create(self) -> StoredSet:
        """The set; uploads to it may be published."""
        made = self.sets.create(REQUEST, self.sets.plan(REQUEST))
        self.desk.upload("upload", names(10))
        return made

    @contextmanager
    def elsewhere(self, act: Callable[[], object]) -> Iterator[None]:
        """The block begins once ``act``, in another thread, waits for the store, and lets it go on at its end."""
        self.store.go.clear()
        self.store.at_it.clear()
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(act)
            try:
                assert self.store.at_it.wait(SECONDS)
                yield
            finally:
                self.store.go.set()
            acting.result(SECONDS)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """With a set in it."""
    found = Office(tmp_path)
    found.create()
    yield found
    found.desk.close()


def test_locks_are_taken_in_one_order(office: Office) -> None:
    """Whatever is done: a set's lock before a name's or an account's, and these two never within one another."""
    desk, nested = office.desk, set[tuple[str, str]]()
    desk.delivery.locks = WatchedLocks("name", nested)
    desk.publishing._account_locks = WatchedLocks("account", nested)
    for part in (desk.publishing, office.sets):
        part._set_locks = WatchedLocks("set", nested)
    desk.upload("another", names(10))
    desk.publish("1")
    desk.delivery.deliver_pending()
    desk.delivery.let_lost_go("set")
    office.sets.delete("set")
    office.create()
    assert nested == {("set", "account"), ("set", "name")}


def test_a_delivery_that_is_under_way_is_waited_for(office: Office) -> None:
    """Else it would put back what the deletion removed."""
    office.desk.publish("1")
    with ThreadPoolExecutor(1) as pool:
        with office.elsewhere(office.desk.delivery.deliver_pending):
            deletion = pool.submit(office.sets.delete, "set")
            wait_until(lambda: wanted(office.desk.delivery.locks, "set") == 2)
            assert not office.store.removed
        deletion.result(SECONDS)
    assert (office.store.removed, office.store.pointer) == ([1], 0)
    assert office.desk.delivery.deliver_pending() == 0


def test_a_publish_is_waited_for_without_the_name(office: Office) -> None:
    """The set's releases are delivered meanwhile, by the one thread that delivers those of all sets."""
    desk = office.desk
    set_id = desk.ledger.get_set("set").set_id
    desk.publish("1")
    with ThreadPoolExecutor(1) as pool:
        with desk.locks[set_id]:  # as a publish has it
            deletion = pool.submit(office.sets.delete, "set")
            wait_until(lambda: wanted(desk.locks, set_id) == 2)
            assert desk.delivery.deliver_pending() == 1
            with pytest.raises(AlreadyExists):
                office.create()
        deletion.result(SECONDS)
    assert office.store.removed == [1]


def test_a_set_of_the_name_is_made_once_the_other_is_gone(office: Office) -> None:
    """Not in the middle of its deletion, whose removal from the store would then be of the new set's releases."""
    before = office.desk.ledger.get_set("set").set_id
    with office.elsewhere(partial(office.sets.delete, "set")), pytest.raises(AlreadyExists):
        office.create()
    made = office.create()
    assert office.desk.ledger.get_set("set") == made
    assert made.set_id > before


def test_a_deletion_that_comes_too_late_spares_the_new_set(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another deletion was faster, and a new set bears the name by the time that the locks are had."""
    desk, check = office.desk, office.desk.guard.check

    def overtaken(*names: str) -> None:
        monkeypatch.setattr(desk.guard, "check", check)
        office.sets.delete("set")
        office.create()

    monkeypatch.setattr(desk.guard, "check", overtaken)
    with pytest.raises(NotFound):
        office.sets.delete("set")
    assert len(desk.held()) == 10
    desk.publish("1")
    assert desk.delivery.deliver_pending() == 1


@pytest.mark.parametrize("name", ["unknown", "", "a" * 64, "Ä"])
def test_what_is_no_set_takes_no_lock(office: Office, name: str) -> None:
    """Whatever a caller typed."""
    office.desk.delivery.locks = office.sets._set_locks = KeyedLocksOfNobody()
    with pytest.raises((NotFound, InvalidInput)):
        office.sets.delete(name)
