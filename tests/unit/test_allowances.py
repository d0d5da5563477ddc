"""Calls open at a time and calls a second: per caller, in all, and in bounded memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import Field, fields
from functools import partial

import pytest

from veilset.errors import InvalidInput, LimitExceeded
from veilset_server.rpc.allowances import (
    BYTES_IN_ALL,
    BYTES_OF_ONE,
    MAX_KEYS,
    PUBLIC_CALLS_PER_ADDRESS,
    Allowances,
    RateLimit,
)
from veilset_server.settings import Limits


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    """And never more than the burst, however long nobody asked."""
    clock = Clock()
    limit = RateLimit(20 / 60, 20, clock)
    assert [limit.take("a") for _ in range(25)] == [True] * 20 + [False] * 5
    clock.now += 2.9
    assert not limit.take("a")
    clock.now += 0.2
    assert [limit.take("a") for _ in range(2)] == [True, False]
    clock.now += 1e6
    assert [limit.take("a") for _ in range(21)] == [True] * 20 + [False]


def test_ten_thousand_attempts_in_a_minute_get_forty_at_most() -> None:
    """The burst, and what comes back in that minute."""
    clock = Clock()
    limit = RateLimit(20 / 60, 20, clock)
    taken = 0
    for _ in range(10_000):
        clock.now += 60 / 10_000
        taken += limit.take("a")
    assert 20 < taken <= 40


def test_a_clock_that_goes_back_gives_nothing() -> None:
    """The system's monotonic clock does not; should it, no bucket fills."""
    clock = Clock()
    limit = RateLimit(1, 1, clock)
    assert limit.take("a")
    clock.now -= 50
    assert not limit.take("a")


def test_memory_is_bounded_however_many_callers_come() -> None:
    """The ones used last are remembered."""
    limit = RateLimit(1e-9, 1, Clock())
    for number in range(MAX_KEYS + 500):
        assert limit.take(f"peer {number}")
    assert len(limit) == MAX_KEYS
    assert not limit.take(f"peer {MAX_KEYS + 499}")


def test_keys_do_not_share_a_bucket() -> None:
    """One caller's calls are its own."""
    limit = RateLimit(1, 1, Clock())
    assert [limit.take(key) for key in "aab"] == [True, False, True]


def test_calls_open_at_a_time() -> None:
    """Per principal first, then in all; every end gives one back, also that of a call that failed."""
    allowances = Allowances(Limits(max_calls=5, max_calls_per_principal=3), Clock())
    with ExitStack() as calls:
        for _ in range(3):
            calls.enter_context(allowances.call("a"))
        with pytest.raises(LimitExceeded, match="max_calls_per_principal = 3") as own, allowances.call("a"):
            pass
        assert own.value.details == {"setting": "max_calls_per_principal", "limit": "3"}
        for _ in range(2):
            calls.enter_context(allowances.call("b"))
        with pytest.raises(LimitExceeded, match="max_calls = 5"), allowances.call("b"):
            pass
        assert allowances.open_calls == 5
    for _ in range(10):
        with pytest.raises(ZeroDivisionError), allowances.call("a"):
            raise ZeroDivisionError
    assert allowances.open_calls == 0
    assert not allowances._open


def test_public_calls_have_a_bound_of_their_own() -> None:
    """Nobody's calls take their place, nor they anybody's; there is a bound all the same."""
    allowances = Allowances(Limits(max_calls=2, max_calls_per_principal=2, requests_per_second=1), Clock())
    displaced: list[int] = []
    with ExitStack() as calls:
        for number in range(PUBLIC_CALLS_PER_ADDRESS + 3):
            calls.enter_context(allowances.public("a", partial(displaced.append, number)))
        for _ in range(2):
            calls.enter_context(allowances.call("a"))
        assert displaced == [0, 1, 2]


def test_calls_a_second() -> None:
    """Two seconds' worth at once, then the rate; who is over its own takes nothing from the others."""
    clock = Clock()
    limits = Limits(requests_per_second=15, requests_per_second_per_principal=10)
    allowances = Allowances(limits, clock)

    def begun(key: str, calls: int) -> int:
        count = 0
        for _ in range(calls):
            try:
                with allowances.call(key):
                    count += 1
            except LimitExceeded:
                pass
        return count

    assert begun("a", 1000) == 20
    assert begun("b", 1000) == 10  # what is left of 30 in all
    clock.now += 1.0
    assert begun("a", 1000) == 10
    assert begun("b", 1000) == 5
    with pytest.raises(LimitExceeded) as refusal, allowances.call("a"):
        pass
    assert refusal.value.details["setting"] == "requests_per_second_per_principal"


@pytest.mark.parametrize("limit", fields(Limits), ids=lambda limit: limit.name)
def test_every_limit_has_a_range(limit: Field[int]) -> None:
    """The error names the setting and says what would be right."""
    name, (low, high) = limit.name, limit.metadata["range"]
    for value in (low - 1, high + 1, float("nan")):
        with pytest.raises(InvalidInput, match=f"^{name} must be a number in "):
            Limits(**{name: value})  # type: ignore[arg-type]
    assert getattr(Limits(**{name: int(high)}), name) == high


def test_bytes_of_messages() -> None:
    """Of one caller and in all, each refusal by name; what was dealt with is free again, and nothing is remembered of it."""
    allowances = Allowances(Limits())
    with ExitStack() as held:
        held.enter_context(allowances.message("a", BYTES_OF_ONE))
        with pytest.raises(LimitExceeded, match="bytes_in_flight_per_principal"), allowances.message("a", 1):
            pass
        for number in range(BYTES_IN_ALL // BYTES_OF_ONE - 1):
            held.enter_context(allowances.message(f"b{number}", BYTES_OF_ONE))
        with pytest.raises(LimitExceeded, match="bytes_in_flight ="), allowances.message("c", 1):
            pass
    with allowances.message("a", BYTES_OF_ONE):
        pass
    assert not allowances._bytes


def test_an_empty_message_ends_behind_another() -> None:
    """A request without fields has no bytes, and a caller may have several under way."""
    allowances = Allowances(Limits())
    with ExitStack() as held:
        held.enter_context(allowances.message("a", 0))
        with allowances.message("a", 5):
            pass
    with allowances.message("a", BYTES_OF_ONE):
        pass


def test_streams_leave_room_for_other_calls() -> None:
    """A sixteenth more may be open of these, and no more."""
    allowances = Allowances(Limits(max_calls=32, max_calls_per_principal=100))
    with ExitStack() as held:
        for _ in range(32):
            held.enter_context(allowances.call("a", stream=True))
        with pytest.raises(LimitExceeded), allowances.call("a", stream=True):
            pass
        for _ in range(2):
            held.enter_context(allowances.call("b"))
        with pytest.raises(LimitExceeded), allowances.call("b"):
            pass
    assert allowances.open_calls == 0
