"""Slots for callers without credentials: bounded, and never refused."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from veilset_server.rpc.allowances import EvictingSlots


def take(places: EvictingSlots, stack: ExitStack, address: str, count: int, displaced: list[str]) -> None:
    """So many more for one address; those that are displaced are named in order."""
    for number in range(count):
        stack.enter_context(places.take(address, partial(displaced.append, f"{address}{number}")))


def test_the_newest_takes_the_place_of_the_oldest_of_its_address() -> None:
    """Never more than its bound, and each is displaced once."""
    places, displaced = EvictingSlots(10, 3), list[str]()
    with ExitStack() as stack:
        take(places, stack, "a", 5, displaced)
        assert len(places) == 3
        assert displaced == ["a0", "a1"]
    assert len(places) == 0
    assert not places._held


def test_many_requests_from_one_address_cost_others_no_slot() -> None:
    """However many come from wherever: who holds fewer than another loses none to them."""
    places, displaced = EvictingSlots(12, 6), list[str]()
    with ExitStack() as stack:
        take(places, stack, "quiet", 1, displaced)
        for address in "abc":
            take(places, stack, address, 50, displaced)
        take(places, stack, "late", 1, displaced)
        assert len(places) == 12
        assert {name[0] for name in displaced} == set("abc")
        assert len(displaced) == 152 - 12


def test_a_place_that_is_free_again_displaces_nobody() -> None:
    """One after the other, as often as they like; also where the block fails."""
    places, displaced = EvictingSlots(1, 1), list[str]()
    for _ in range(20):
        with ExitStack() as stack:
            take(places, stack, "a", 1, displaced)
    assert displaced == []
