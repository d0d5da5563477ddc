"""The claim of the linear encoding by exact enumeration: ratios reach e^ε and never pass it. And what rejected variants leak.

Probabilities are fractions; ε is chosen so that e^ε is a whole number. Nothing here is measured.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest

from linear_systems import Law, coefficients, in_turn, largest_ratio, release_law, solutions, subsets
from veilset.core.encodings.linear.encode import encode
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.linear.rows import row

ELEMENTS = [0x0123456789ABCDEF, 0x3FFF000011112222, 0x8000000000000001, 0xF1E2D3C4B5A69788]
SYSTEMS = [(4, 2, 1), (5, 3, 1), (3, 2, 2), (2, 2, 3)]  # columns, band, planes


def add_remove(growth: int, q: int) -> Fraction:
    """d for e^ε = growth."""
    return max(Fraction(1, growth), Fraction(q - growth, q - 1))


def replace_one(growth: int, q: int) -> Fraction:
    return Fraction(q, q + growth - 1)


def parameters(columns: int, band: int, planes: int) -> LinearParameters:
    return LinearParameters(columns, band, planes, 1 << 62)


@pytest.mark.parametrize("growth", [2, 3, 7, 20])
@pytest.mark.parametrize(("columns", "band", "planes"), SYSTEMS)
def test_adding_an_element_costs_exactly_epsilon(columns: int, band: int, planes: int, growth: int) -> None:
    """For every set of up to three others: the worst is attained, and never passed."""
    shape = parameters(columns, band, planes)
    drop = add_remove(growth, shape.q)
    laws = {
        chosen: release_law(shape, list(chosen), drop)
        for count in range(len(ELEMENTS) + 1)
        for chosen in combinations(ELEMENTS, count)
    }
    ratios = [
        largest_ratio(laws[chosen], laws[tuple(x for x in chosen if x != left)]) for chosen in laws for left in chosen
    ]
    assert None not in ratios
    assert max(ratio for ratio in ratios if ratio is not None) == growth


@pytest.mark.parametrize("growth", [2, 3, 20])
@pytest.mark.parametrize(("columns", "band", "planes"), SYSTEMS)
def test_replacing_an_element_costs_exactly_epsilon(columns: int, band: int, planes: int, growth: int) -> None:
    shape = parameters(columns, band, planes)
    drop = replace_one(growth, shape.q)
    worst = Fraction(0)
    for one, other in permutations(ELEMENTS, 2):
        rest = [x for x in ELEMENTS if x not in (one, other)]
        for count in range(len(rest) + 1):
            for common in combinations(rest, count):
                laws = (release_law(shape, sorted([*common, x]), drop) for x in (one, other))
                ratio = largest_ratio(*laws)
                assert ratio is not None
                worst = max(worst, ratio)
    assert worst == growth


def test_elements_of_one_user_cost_their_shares() -> None:
    """Three elements at e^(ε/3) = 2 each: at most 8 together, and just that where all rows are independent."""
    shape = parameters(5, 3, 1)
    drop = add_remove(2, shape.q)
    ratios = [
        largest_ratio(release_law(shape, list(chosen), drop), release_law(shape, [], drop))
        for chosen in combinations(ELEMENTS, 3)
    ]
    assert max(ratio for ratio in ratios if ratio is not None) <= 8
    assert None not in ratios


@pytest.mark.parametrize(("columns", "band", "planes"), [(5, 3, 1), (6, 2, 1), (3, 3, 2)])
@pytest.mark.parametrize("compiled", [False, True])
def test_production_draws_every_solution_equally_often(columns: int, band: int, planes: int, compiled: bool) -> None:
    """Over all fillings of the random bits, with the coins that keep a given subset: the law that is enumerated above."""
    shape = parameters(columns, band, planes)
    for kept, _ in subsets(ELEMENTS, Fraction(1, 2)):
        coins = b"".join((b"\xff" if x in kept else b"\0") * 8 for x in ELEMENTS)
        seen: dict[tuple[int, ...], int] = {}
        for filling in range(1 << columns * planes):
            words = [filling >> columns * plane & (1 << columns) - 1 for plane in range(planes)]
            source = [coins, b"".join((word | 0xA5 << 56).to_bytes(8, "little") for word in words)]
            digests = np.array(ELEMENTS, np.uint64)
            vector = b"".join(encode(shape, [digests], in_turn(*source), compiled=compiled))
            drawn = tuple(np.frombuffer(vector, np.uint64).tolist())
            seen[drawn] = seen.get(drawn, 0) + 1
        assert sorted(seen) == sorted(solutions(shape, kept))
        assert len(set(seen.values())) == 1


def test_two_coins_for_one_element_cost_more_than_epsilon() -> None:
    """Rejected: duplicates that are dropped behind the coins. d² in place of d: e^2ε."""
    shape = parameters(4, 2, 1)
    x, rest = ELEMENTS[0], ELEMENTS[1:2]
    drop = add_remove(3, 2)
    assert largest_ratio(release_law(shape, rest, drop), release_law(shape, [x, x, *rest], drop)) == 9


def targets_law(shape: LinearParameters, digests: list[int], drop: Fraction) -> Law:
    """Rejected: row(x)·v = t(x) for a public t, with a refusal where there is no solution."""
    law: Law = {}
    for kept, chance in subsets(digests, drop):
        system = [(coefficients(shape, x), x >> 3 & 1) for x in kept]
        possible: list[int | None] = [
            v for v in range(1 << shape.columns) if all((v & line).bit_count() % 2 == t for line, t in system)
        ] or [None]
        for v in possible:
            law[v] = law.get(v, Fraction(0)) + chance / len(possible)
    return law


def fixed_free_law(shape: LinearParameters, digests: list[int], drop: Fraction) -> Law:
    """Rejected: free columns that hold a constant."""
    law: Law = {}
    for kept, chance in subsets(digests, drop):
        coins = b"".join((b"\xff" if x in kept else b"\0") * 8 for x in digests)
        source = [coins, b"\xff" * 8] if digests else [b"\xff" * 8]
        chunks = [np.array(digests, np.uint64)] if digests else []
        vector = b"".join(encode(shape, chunks, in_turn(*source)))
        law[vector] = law.get(vector, Fraction(0)) + chance
    return law


def bumped_law(shape: LinearParameters, digests: list[int], drop: Fraction) -> Law:
    """Rejected: rows that do not fit are bumped, and the release says from which column on."""
    law: Law = {}
    for kept, chance in subsets(digests, drop):
        fits = [x for i, x in enumerate(kept) if not _depends(shape, kept[:i], x)]
        bumped = min((row(shape, x).column for x in kept if x not in fits), default=shape.columns)
        possible = solutions(shape, fits)
        for v in possible:
            law[v, bumped] = law.get((v, bumped), Fraction(0)) + chance / len(possible)
    return law


def drop_hash_law(shape: LinearParameters, digests: list[int], drop: Fraction) -> Law:
    """Rejected: a hash with a published seed says who is dropped."""
    kept = [x for x in digests if x % 1000 >= drop * 1000]
    possible = solutions(shape, kept)
    return {v: Fraction(1, len(possible)) for v in possible}


def _depends(shape: LinearParameters, kept: tuple[int, ...], x: int) -> bool:
    return len(solutions(shape, kept)) == len(solutions(shape, (*kept, x)))


@pytest.mark.parametrize("variant", [targets_law, fixed_free_law, bumped_law, drop_hash_law])
def test_rejected_variants_leak_without_bound(variant: object) -> None:
    """Each has an outcome that is possible with an element and impossible without it, or the other way round."""
    assert callable(variant)
    shape = parameters(4, 2, 1)
    drop = add_remove(3, 2)
    crowd = sorted({*ELEMENTS, *(x + 999 for x in ELEMENTS)})
    sets = [chosen for count in (1, 2, 3) for chosen in combinations(crowd, count)]
    pairs = [(list(chosen), [x for x in chosen if x != left]) for chosen in sets for left in chosen]
    assert any(largest_ratio(variant(shape, more, drop), variant(shape, less, drop)) is None for more, less in pairs)
    whole = [largest_ratio(release_law(shape, more, drop), release_law(shape, less, drop)) for more, less in pairs]
    assert all(ratio is not None and ratio <= 3 for ratio in whole)
