"""Counting what callers take: calls open at a time, and calls a second. In memory, bounded however many callers come."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from veilset_server.limits import Limits, exceeded
from veilset_server.rpc.fairness import EvictingSlots

MAX_KEYS = 10_000
BURST_SECONDS = 2.0
PUBLIC_CALLS = 256
PUBLIC_CALLS_PER_ADDRESS = 128
"""Open at a time, of methods that need no credentials."""

BYTES_IN_ALL = 256 << 20
BYTES_OF_ONE = 128 << 20
"""Of messages that came and are not dealt with yet."""


class RateLimit:
    """Token buckets, one a key: ``burst`` at once, ``per_second`` on the long run. Thread-safe.

    Only the ``MAX_KEYS`` keys used last are remembered. A key that was forgotten starts with a full bucket, so many keys
    gain nothing that they would not have had one by one. The clock is monotonic: setting the time refills nothing.
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
        together, send faster than that goes; what was acknowledged of an upload stays, and it can be resumed."""
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
        """One call of a method that needs no credentials: a health check. It counts on no one's limits, since strangers must
        not use up those of callers with credentials. Refusing it costs as much as answering it, and a probe that is refused
        has the service restarted: so it always begins, and where too many are open the oldest one ends (`EvictingSlots`).
        """
        return self._public.take(address, displace)
