"""A lock per key: one holder at a time, none kept that nobody wants."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.patience import SECONDS
from veilset_server.locks import KeyedLocks


def test_one_at_a_time_for_each_key() -> None:
    """Eight threads add to two numbers; nothing is lost though each looks away in between."""
    locks, sums = KeyedLocks(), [0, 0]
    look_away = threading.Event()

    def add(number: int) -> None:
        with locks[number % 2]:
            before = sums[number % 2]
            look_away.wait(0.001)
            sums[number % 2] = before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(200)))
    assert sums == [100, 100]
    assert len(locks) == 0


def test_another_key_is_free() -> None:
    """While one is held."""
    locks = KeyedLocks()

    def take() -> bool:
        with locks["b"]:
            return True

    with locks["a"], ThreadPoolExecutor(1) as pool:
        assert pool.submit(take).result(SECONDS)


def test_who_has_it_may_take_it_again() -> None:
    """And has it until it was given back as often."""
    locks, taken = KeyedLocks(), threading.Event()

    def take() -> None:
        with locks["a"]:
            taken.set()

    with ThreadPoolExecutor(1) as pool:
        with locks["a"]:
            with locks["a"]:
                waiting = pool.submit(take)
            assert not taken.wait(0.05)
            assert len(locks) == 1
        waiting.result(SECONDS)
    assert len(locks) == 0


def test_no_key_is_remembered() -> None:
    """However many there were, and however their blocks ended: names in them are what callers gave."""
    locks = KeyedLocks()
    for number in range(100):
        with pytest.raises(ZeroDivisionError), locks[f"name {number}"]:
            _ = 1 // (1 - len(locks))
    assert len(locks) == 0
