"""Slots shared fairly between callers: some wait for their turn, others take the slot of the heaviest user."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from veilset.errors import LimitExceeded

MAX_PLANS_WAITING = 64
MAX_PLANS_OF_ONE = 8


class FairSlots:
    """A fair semaphore: at most ``places`` slots are held at a time, and ``of_one`` by one caller. Thread-safe.

    A free slot goes to the caller that holds fewest; among equals to the one served longest ago. So a caller with a thousand
    waiting threads delays another caller by the work that has already begun, and no more.

    most_waiting, most_of_one: how many may hold or wait for a slot, in all and of one caller.
    """

    def __init__(self, places: int, of_one: int, most_waiting: float = float("inf"), most_of_one: float = float("inf")):
        self._free = places
        self._of_one = of_one
        self._most_waiting = most_waiting
        self._most_of_one = most_of_one
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self._waiting: dict[str, deque[threading.Event]] = {}
        self._served: Counter[str] = (
            Counter()
        )  # of those who hold or want a place: the number of the turn they had last
        self._turns = 0

    def __len__(self) -> int:
        """How many hold a place or wait for one."""
        return self._wanted.total()

    @contextmanager
    def place(self, key: str) -> Iterator[None]:
        """The block in which ``key`` has a place; waits for it. Raises LimitExceeded where too many wait."""
        turn = threading.Event()
        with self._lock:
            self._check(key)
            self._wanted[key] += 1
            self._waiting.setdefault(key, deque()).append(turn)
            self._hand_out()
        turn.wait()
        try:
            yield
        finally:
            with self._lock:
                self._free += 1
                _less(self._held, key)
                _less(self._wanted, key)
                if key not in self._wanted:
                    del self._served[key]
                self._hand_out()

    def _check(self, key: str) -> None:
        if self._wanted.total() >= self._most_waiting:
            limit = self._most_waiting
            raise LimitExceeded(f"plans: {limit} are waiting; try again", limit=limit)
        if self._wanted[key] >= self._most_of_one:
            limit = self._most_of_one
            raise LimitExceeded(f"plans: {limit} of yours are waiting; try again", limit=limit)

    def _hand_out(self) -> None:
        while self._free:
            may = [key for key in self._waiting if self._held[key] < self._of_one]
            if not may:
                return
            key = min(may, key=lambda key: (self._held[key], self._served[key]))
            turns = self._waiting[key]
            turns.popleft().set()
            if not turns:
                del self._waiting[key]
            self._turns += 1
            self._served[key] = self._turns
            self._held[key] += 1
            self._free -= 1


def plan_slots() -> FairSlots:
    """For searches for a plan, which take seconds of a processor: one at a time, and no long queue."""
    return FairSlots(1, 1, MAX_PLANS_WAITING, MAX_PLANS_OF_ONE)


def bulk_slots() -> FairSlots:
    """For what keeps a processor busy: as many at a time as there are processors, of one caller half of that."""
    processors = os.cpu_count() or 1
    return FairSlots(processors, max(1, processors // 2))


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


class EvictingSlots:
    """At most ``in_all`` slots, and ``of_one`` of them for one address. Thread-safe.

    Every request gets a slot. If none is free, the oldest slot of the address that holds most is taken back: many requests
    from one address never cost another address its slot, and short requests end before they are evicted.
    """

    def __init__(self, in_all: int, of_one: int) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._lock = threading.Lock()
        self._held: defaultdict[str, dict[object, Callable[[], None]]] = defaultdict(dict)  # the longest held first

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    @contextmanager
    def take(self, address: str, displace: Callable[[], None]) -> Iterator[None]:
        """A place while the block runs. displace: ends what the block does; called at most once, from any thread, and may
        neither wait nor fail.
        """
        place = object()
        with self._lock:
            if len(self._held[address]) >= self._of_one:
                self._displace(address)
            elif len(self) >= self._in_all:
                self._displace(max(self._held, key=lambda held: len(self._held[held])))
            self._held[address][place] = displace
        try:
            yield
        finally:
            with self._lock:
                self._drop(address, place)

    def _displace(self, address: str) -> None:
        place, displace = next(iter(self._held[address].items()))
        displace()
        self._drop(address, place)

    def _drop(self, address: str, place: object) -> None:
        held = self._held.get(address, {})
        held.pop(place, None)
        if not held:
            self._held.pop(address, None)
