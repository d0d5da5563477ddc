"""What callers share: calls open at a time, calls a second, bytes of messages, slots for work. In memory, and bounded however
many callers come."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from veilset.errors import LimitExceeded
from veilset_server.settings import Limits, exceeded

MAX_KEYS = 10_000
BURST_SECONDS = 2.0
PUBLIC_CALLS = 256
PUBLIC_CALLS_PER_ADDRESS = 128
"""Open at a time, of methods that need no credentials."""

BYTES_IN_ALL = 256 << 20
BYTES_OF_ONE = 128 << 20
"""Of messages that came and are not dealt with yet."""

MAX_PLANS_WAITING = 64
MAX_PLANS_OF_ONE = 8


class RateLimit:
    """Token buckets, one a key: ``burst`` at once, ``per_second`` on the long run. Thread-safe.

    Only the ``MAX_KEYS`` keys used last are remembered. A key that was forgotten starts with a full bucket: many keys
    gain nothing by it, since each new key has a full bucket anyway. The clock is monotonic: setting the time refills nothing.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> bool:
        """Take one; False if there is none left."""
        with self._lock:
            now = self._clock()
            left, then = self._buckets.pop(key, (self._burst, now))
            left = min(self._burst, left + max(0.0, now - then) * self._per_second)
            taken = left >= 1
            self._buckets[key] = (left - 1 if taken else left, now)
            if len(self._buckets) > MAX_KEYS:
                self._buckets.popitem(last=False)
            return taken

    def __len__(self) -> int:
        return len(self._buckets)


class Allowances:
    """The calls of all callers. Thread-safe."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._open_in_all = 0
        self._bytes: dict[str, int] = {}
        self._bytes_in_all = 0
        self._public = EvictingSlots(PUBLIC_CALLS, PUBLIC_CALLS_PER_ADDRESS)
        own, everybody = limits.requests_per_second_per_principal, limits.requests_per_second
        self._rate = RateLimit(own, own * BURST_SECONDS, clock)
        self._rate_in_all = RateLimit(everybody, everybody * BURST_SECONDS, clock)

    @property
    def open_calls(self) -> int:
        """Number of calls that are open now."""
        return self._open_in_all

    @contextmanager
    def call(self, key: str, *, stream: bool = False) -> Iterator[None]:
        """One call of the caller ``key``, from its beginning to its end. Raises LimitExceeded before it begins.

        A caller who is over its own limits takes nothing from the common ones. Streams leave some room to others.
        """
        with self._lock:
            self._begin(key, stream=stream)
        try:
            yield
        finally:
            with self._lock:
                self._open_in_all -= 1
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]

    def _begin(self, key: str, *, stream: bool) -> None:
        limits = self._limits
        held = self._open.get(key, 0)
        if held >= limits.max_calls_per_principal:
            raise exceeded(
                f"calls: {held} of yours are open", "max_calls_per_principal", limits.max_calls_per_principal
            )
        if not self._rate.take(key):
            setting = "requests_per_second_per_principal"
            raise exceeded("calls: too many of yours a second", setting, limits.requests_per_second_per_principal)
        if self._open_in_all >= limits.max_calls + (0 if stream else limits.reserved_calls):
            raise exceeded("calls: too many are open in all", "max_calls", limits.max_calls)
        if not self._rate_in_all.take(""):
            raise exceeded("calls: too many a second in all", "requests_per_second", limits.requests_per_second)
        self._open[key] = held + 1
        self._open_in_all += 1

    @contextmanager
    def message(self, key: str, length: int) -> Iterator[None]:
        """One message of the caller ``key``, from when it came to when it is dealt with. Raises LimitExceeded: the caller, or all
        together, send faster than messages are handled; what was acknowledged of an upload stays, and it can be resumed."""
        with self._lock:
            held = self._bytes.get(key, 0)
            if held + length > BYTES_OF_ONE:
                raise exceeded(
                    "messages: too many of yours wait; use fewer streams", "bytes_in_flight_per_principal", BYTES_OF_ONE
                )
            if self._bytes_in_all + length > BYTES_IN_ALL:
                raise exceeded("messages: too many wait in all; try again", "bytes_in_flight", BYTES_IN_ALL)
            self._bytes[key] = held + length
            self._bytes_in_all += length
        try:
            yield
        finally:
            with self._lock:
                self._bytes_in_all -= length
                left = self._bytes.get(key, 0) - length  # an empty message may end behind the last of some length
                if left:
                    self._bytes[key] = left
                else:
                    self._bytes.pop(key, None)

    def public(self, address: str, displace: Callable[[], None]) -> AbstractContextManager[None]:
        """One call of a method that needs no credentials: a health check. It counts on no limit of callers with
        credentials, who must not lose their share to others. Refusing it costs as much as answering it, and a supervisor
        restarts a service whose probe is refused: so it always begins, and where too many are open the oldest one ends
        (`EvictingSlots`).
        """
        return self._public.take(address, displace)


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
        self._served: Counter[str] = Counter()  # of those that hold or want a place: when they last got one, as a count
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
