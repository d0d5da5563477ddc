"""The promise of generations by exact enumeration: tiny mechanisms, all histories of three digests, rational arithmetic.

A history is, for every publish, the operations that were finished before it. What each release holds follows from it, and the
releases' noise is independent, so the largest ratio of a sequence of outputs is the product of the largest ratios of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

Held = frozenset[str]
Operations = tuple[str, ...]
"""For each digest of DIGESTS "add", "remove" or "" before one publish."""

DIGESTS = ("x", "a", "b")
ROWS = {"x": 0b01, "a": 0b10, "b": 0b11}
ALL_ONES = {"x": 0, "a": 1, "b": 0}
E = Fraction(3)
"""e^ε of a base, and so of each increment."""

LARGE = Fraction(4)
Mechanism = Callable[[Held, Fraction], dict[tuple[int, ...], Fraction]]


def linear(held: Held, bound: Fraction, drop: Fraction | None = None) -> dict[tuple[int, ...], Fraction]:
    """The law of the linear encoding with two columns and two planes, q = 4."""
    q = Fraction(4)
    drop = max(1 / bound, (q - bound) / (q - 1)) if drop is None else drop
    law: dict[tuple[int, ...], Fraction] = {}
    for coins in product((False, True), repeat=len(held)):
        kept = [digest for digest, keep in zip(sorted(held), coins, strict=True) if keep]
        chance = (1 - drop) ** len(kept) * drop ** (len(held) - len(kept))
        planes = [v for v in range(4) if all((ROWS[digest] & v).bit_count() % 2 == 0 for digest in kept)]
        for vector in product(planes, repeat=2):
            law[vector] = law.get(vector, Fraction(0)) + chance / len(planes) ** 2
    return law


def linear_for_swaps(held: Held, bound: Fraction) -> dict[tuple[int, ...], Fraction]:
    """The same with the drop probability of replace-one, q/(q + e^ε - 1)."""
    return linear(held, bound, 4 / (4 + bound - 1))


def bloom(held: Held, bound: Fraction) -> dict[tuple[int, ...], Fraction]:
    """The law of two bits, one position for each digest, every bit flipped with 1/(1 + e^ε)."""
    flip = 1 / (1 + bound)
    bits = [int(any(ALL_ONES[digest] == place for digest in held)) for place in range(2)]
    return {
        read: Fraction(1) * (flip if read[0] != bits[0] else 1 - flip) * (flip if read[1] != bits[1] else 1 - flip)
        for read in product((0, 1), repeat=2)
    }


@cache
def ratio(mechanism: Mechanism, one: Held | None, other: Held | None, bound: Fraction) -> Fraction:
    """The largest ratio of the probabilities of an output; None stands for a release that was not published."""
    if one == other:
        return Fraction(1)
    if one is None or other is None:
        return Fraction(10**9)
    left, right = mechanism(one, bound), mechanism(other, bound)
    return max(left[vector] / right[vector] for vector in left)


class Protocol:
    """What releases hold, as the service decides it; the faults of the subclasses are planted."""

    def held_after(self, held: Held, content: Held, _released: Held) -> Held:
        """What counts as released once an increment is."""
        return held | content

    def increment(self, fresh: Held) -> Held | None:
        """What an increment holds."""
        return fresh

    def bound(self, *, base: bool) -> Fraction:
        """e^ε of a release."""
        return E

    def releases(self, history: Sequence[Operations], bases: Sequence[bool]) -> Iterator[tuple[Held | None, Fraction]]:
        """What each publish releases, and at which e^ε."""
        content: Held = frozenset()
        held: Held = frozenset()
        for operations, base in zip(history, bases, strict=True):
            for digest, operation in zip(DIGESTS, operations, strict=True):
                content = content | {digest} if operation == "add" else content
                content = content - {digest} if operation == "remove" else content
            if base:
                held = content
                yield content, self.bound(base=True)
            else:
                fresh = content - held
                yield self.increment(fresh), self.bound(base=False)
                held = self.held_after(held, content, fresh)


class ForgetsRemoved(Protocol):
    """An element that is added again after its removal is released again."""

    def held_after(self, held: Held, content: Held, _released: Held) -> Held:
        return (held & content) | content


class LosesReleased(Protocol):
    """What an increment released is lost at a crash."""

    def held_after(self, held: Held, content: Held, _released: Held) -> Held:
        return held


class SkipsEmpty(Protocol):
    """An increment without new elements is not published."""

    def increment(self, fresh: Held) -> Held | None:
        return fresh or None


class LargerIncrements(Protocol):
    """Increments have a larger ε than their base."""

    def bound(self, *, base: bool) -> Fraction:
        return E if base else LARGE


def histories(length: int) -> Iterator[tuple[Operations, ...]]:
    """Every history in which x may be added and removed, and the others added."""
    steps = list(product(("", "add", "remove"), ("", "add"), ("", "add")))
    return product(steps, repeat=length)


def without_x(history: Sequence[Operations]) -> tuple[Operations, ...]:
    return tuple(("", *operations[1:]) for operations in history)


def worst(protocol: Protocol, mechanism: Mechanism, bases: Sequence[bool]) -> Fraction:
    """Over all histories and their neighbours without x, in either order."""
    found = Fraction(1)
    for history in histories(len(bases)):
        neighbour = without_x(history)
        if neighbour != history:
            found = max(found, *_ratios(protocol, mechanism, history, neighbour, bases))
    return found


def _ratios(
    protocol: Protocol,
    mechanism: Mechanism,
    history: Sequence[Operations],
    neighbour: Sequence[Operations],
    bases: Sequence[bool],
) -> tuple[Fraction, Fraction]:
    there = back = Fraction(1)
    pairs = zip(protocol.releases(history, bases), protocol.releases(neighbour, bases), strict=True)
    for (one, bound), (other, _) in pairs:
        there *= ratio(mechanism, one, other, bound)
        back *= ratio(mechanism, other, one, bound)
    return there, back


@pytest.mark.parametrize("mechanism", [linear, bloom])
@pytest.mark.parametrize("bases", [(True, False, False), (True, False, True), (True, True, False)])
def test_a_generation_costs_its_base_once(mechanism: Mechanism, bases: tuple[bool, ...]) -> None:
    """Never above e^ε for each base, and reached."""
    assert worst(Protocol(), mechanism, bases) == E ** sum(bases)


@pytest.mark.parametrize("fault", [ForgetsRemoved, LosesReleased, SkipsEmpty, LargerIncrements])
@pytest.mark.parametrize("mechanism", [linear, bloom])
def test_each_planted_fault_passes_the_bound(fault: type[Protocol], mechanism: Mechanism) -> None:
    assert worst(fault(), mechanism, (True, False, False)) > E


def moved(early: int, late: int, length: int) -> tuple[tuple[Operations, ...], tuple[Operations, ...]]:
    """Two histories in which x arrives before different publishes."""
    one, other = ([("", "", "") for _ in range(length)] for _ in range(2))
    one[early] = ("add", "", "")
    other[late] = ("add", "", "")
    return tuple(one), tuple(other)


def test_the_time_of_an_arrival_costs_twice_under_add_remove() -> None:
    """As docs/privacy.md says: somebody else's later add of the same element shows when it first came."""
    one, other = moved(0, 1, 3)
    assert max(_ratios(Protocol(), linear, one, other, (True, False, False))) == E * E


def test_swaps_and_moves_cost_once_under_replace_one() -> None:
    """Linear, with the drop probability of replace-one in every release."""
    bases = (True, False, False)
    found = []
    for early, late in ((0, 1), (0, 2), (1, 2)):
        one, other = moved(early, late, 3)
        found.append(max(_ratios(Protocol(), linear_for_swaps, one, other, bases)))
    for step in range(3):
        one = tuple(("add" if at == step else "", "", "") for at in range(3))
        other = tuple(("", "add" if at == step else "", "") for at in range(3))
        found.append(max(_ratios(Protocol(), linear_for_swaps, one, other, bases)))
    assert set(found) == {E}


def test_tombstones_add_their_own_epsilon_and_no_more() -> None:
    """A second vector in each increment, of released digests that left, each at most once."""
    removals = Fraction(2)
    found = Fraction(1)
    for history in histories(3):
        neighbour = without_x(history)
        for one, other in ((history, neighbour), (neighbour, history)):
            total = Fraction(1)
            for left, right in zip(_with_tombstones(one), _with_tombstones(other), strict=True):
                total *= ratio(linear, left[0], right[0], E) * ratio(linear, left[1], right[1], removals)
            found = max(found, total)
    assert found == E * removals


def _with_tombstones(history: Sequence[Operations]) -> Iterator[tuple[Held, Held]]:
    content: Held = frozenset()
    held: Held = frozenset()
    buried: Held = frozenset()
    for step, operations in enumerate(history):
        for digest, operation in zip(DIGESTS, operations, strict=True):
            content = content | {digest} if operation == "add" else content
            content = content - {digest} if operation == "remove" else content
        if step == 0:
            held = content
            yield content, frozenset()
            continue
        gone = held - content - buried
        yield content - held, gone
        held, buried = held | content, buried | gone
