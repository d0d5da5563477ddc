"""The distribution of W: against full enumeration, against other exact formulas, and at its edges."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest

from veilset.core.encodings.bloom.occupancy import (
    ROUNDED_UP,
    changed_bits_distribution,
    dominating_distribution,
    maximum_changed_bits,
)
from veilset.core.params import Adjacency
from veilset.errors import InvalidInput

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def assert_overstates_slightly(distribution: tuple[Decimal, ...], exact: list[Fraction]) -> None:
    """Each entry is at least the exact probability, and above it by less than 2e-50."""
    assert len(distribution) == len(exact)
    for w, (entry, probability) in enumerate(zip(distribution, exact, strict=True)):
        assert 0 <= Fraction(entry) - probability < 2 * Fraction(ROUNDED_UP), w


def masks_hit(bits: int, draws: int) -> Counter[int]:
    """How often each set of bins (as a bit mask) is hit, over all bits^draws outcomes."""
    outcomes = itertools.product([1 << b for b in range(bits)], repeat=draws)
    return Counter(sum(set(outcome)) for outcome in outcomes)


def enumerated(bits: int, hashes: int, adjacency: Adjacency, user: int, min_size: int) -> list[Fraction]:
    """P(W = w) by going through every outcome of every hash value."""
    own = masks_hit(bits, user * hashes)
    candidates: Counter[int] = Counter()
    if adjacency is ADD_REMOVE:
        candidates = own
    else:
        for (one, one_count), (two, two_count) in itertools.product(own.items(), repeat=2):
            candidates[one ^ two] += one_count * two_count
    rest = masks_hit(bits, max(0, min_size - user) * hashes)
    counts: Counter[int] = Counter()
    for (changed, changed_count), (cover, cover_count) in itertools.product(candidates.items(), rest.items()):
        counts[(changed & ~cover).bit_count()] += changed_count * cover_count
    total = sum(counts.values())
    return [Fraction(counts[w], total) for w in range(maximum_changed_bits(hashes, adjacency, user) + 1)]


@pytest.mark.parametrize("min_size", [1, 2, 3])
@pytest.mark.parametrize("user", [1, 2])
@pytest.mark.parametrize("hashes", [1, 2])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_equals_full_enumeration(adjacency: Adjacency, hashes: int, user: int, min_size: int) -> None:
    """With 8 bits every outcome of the hash can be gone through; the distribution agrees with the count."""
    exact = enumerated(8, hashes, adjacency, user, min_size)
    assert_overstates_slightly(changed_bits_distribution(8, hashes, adjacency, user, min_size), exact)


def test_reference_values() -> None:
    """m = 64, k = 4, n = 20 under replace-one: the published 8 digits."""
    distribution = changed_bits_distribution(64, 4, REPLACE_ONE, 1, 20)
    assert [round(float(p), 8) for p in distribution[:3]] == [0.07125006, 0.22754425, 0.31155797]


def distinct_values(bits: int, draws: int) -> list[Fraction]:
    """P(c distinct values), one draw after the other."""
    row = [Fraction(1)] + [Fraction(0)] * draws
    for _ in range(draws):
        row = [Fraction(0)] + [
            row[c] * Fraction(c, bits) + row[c - 1] * Fraction(max(0, bits - c + 1), bits) for c in range(1, draws + 1)
        ]
    return row


def symmetric_difference(bits: int, draws: int) -> list[Fraction]:
    """P(c candidates) under replace-one, by conditioning on both sizes; the overlap is hypergeometric."""
    sizes = distinct_values(bits, draws)
    result = [Fraction(0)] * (2 * draws + 1)
    for a, b in itertools.product(range(1, min(draws, bits) + 1), repeat=2):
        for overlap in range(max(0, a + b - bits), min(a, b) + 1):
            ways = Fraction(math.comb(a, overlap) * math.comb(bits - a, b - overlap), math.comb(bits, b))
            result[a + b - 2 * overlap] += sizes[a] * sizes[b] * ways
    return result


@pytest.mark.parametrize(("bits", "hashes", "user"), [(8, 8, 2), (11, 3, 1), (64, 4, 1), (1000, 32, 1), (2**40, 5, 2)])
def test_candidates_without_credit(bits: int, hashes: int, user: int) -> None:
    """Without a promised size W counts the candidates: as drawing one by one and the hypergeometric law give it."""
    draws = hashes * user
    for adjacency, exact in (
        (ADD_REMOVE, distinct_values(bits, draws)),
        (REPLACE_ONE, symmetric_difference(bits, draws) if draws <= 16 else None),
    ):
        if exact is not None:
            assert_overstates_slightly(changed_bits_distribution(bits, hashes, adjacency, user, user), exact)


@pytest.mark.parametrize(
    ("bits", "hashes", "adjacency", "user", "min_size"),
    [
        (8, 1, REPLACE_ONE, 1, 40),
        (64, 4, REPLACE_ONE, 1, 20),
        (500, 32, ADD_REMOVE, 2, 30),
        (300, 16, ADD_REMOVE, 8, 30),
        (300, 32, ADD_REMOVE, 8, 40),
    ],
)
def test_cancellation_stays_below_the_proved_bound(
    bits: int, hashes: int, adjacency: Adjacency, user: int, min_size: int
) -> None:
    """Up to 256 candidates the alternating sum agrees with itself in exact whole-number arithmetic."""
    draws, cover = hashes * user, (min_size - user) * hashes
    candidates = distinct_values(bits, draws) if adjacency is ADD_REMOVE else symmetric_difference(bits, draws)
    unit = math.lcm(*(p.denominator for p in candidates))
    counts = [p.numerator * (unit // p.denominator) for p in candidates]
    moments = [
        sum(math.comb(c, j) * counts[c] for c in range(j, len(counts))) * max(0, bits - j) ** cover
        for j in range(len(counts))
    ]
    exact = [
        Fraction(sum((-1) ** (j - w) * math.comb(j, w) * moments[j] for j in range(w, len(counts))), unit * bits**cover)
        for w in range(len(counts))
    ]
    assert sum(exact) == 1
    assert_overstates_slightly(changed_bits_distribution(bits, hashes, adjacency, user, min_size), exact)


def test_large_exponent_is_accurate() -> None:
    """One candidate (k = 1, add-remove) stays uncovered with (1 - 1/m)^(n - 1), up to the largest m and n."""
    for bits, min_size in ((2**40, 10**12), (2**40, 2), (10**9 + 7, 10**12), (8, 10**12)):
        distribution = changed_bits_distribution(bits, 1, ADD_REMOVE, 1, min_size)
        with decimal.localcontext(prec=150):
            expected = ((1 - Decimal(1) / bits).ln() * (min_size - 1)).exp()
            assert abs(distribution[1] - expected) < 2 * ROUNDED_UP
            assert abs(distribution[0] - (1 - expected)) < 2 * ROUNDED_UP


def test_impossible_is_exactly_zero() -> None:
    """No mass, not even rounding, lies on more bits than exist or than the hash can hit."""
    crowded = changed_bits_distribution(8, 32, ADD_REMOVE, 1, 1)
    assert len(crowded) == 33
    assert crowded[8] > 0
    assert not any(crowded[9:])
    covered = changed_bits_distribution(8, 32, ADD_REMOVE, 1, 2)  # the other element hits at least one of the 8
    assert covered[7] > 0
    assert not any(covered[8:])
    pair = changed_bits_distribution(64, 1, REPLACE_ONE, 1, 1)  # two single positions: equal or both different
    assert pair[1] == 0
    assert pair[2] > 0


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_credit_up_to_the_users_own_elements(adjacency: Adjacency) -> None:
    """A promise of no more elements than one user may own covers nothing; one more does."""
    uncredited = changed_bits_distribution(100, 3, adjacency, 4, 1)
    assert changed_bits_distribution(100, 3, adjacency, 4, 4) == uncredited
    assert changed_bits_distribution(100, 3, adjacency, 4, 5) != uncredited


def tails(distribution: tuple[Decimal, ...]) -> list[Fraction]:
    """P(W >= w), w = 0, 1, …"""
    return list(itertools.accumulate(map(Fraction, reversed(distribution))))[::-1]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("rest", [0, 3])
@pytest.mark.parametrize(("bits", "hashes", "most"), [(8, 1, 12), (11, 3, 5), (64, 2, 9), (4096, 4, 6)])
def test_no_user_of_fewer_elements_changes_more(
    adjacency: Adjacency, rest: int, bits: int, hashes: int, most: int
) -> None:
    """The law that noise is calibrated for dominates W of every user of 1 … u elements beside the same rest."""
    bound = tails(dominating_distribution(bits, hashes, adjacency, most, rest + most))
    for fewer in range(1, most + 1):
        smaller = tails(changed_bits_distribution(bits, hashes, adjacency, fewer, rest + fewer))
        assert all(p <= q + 300 * Fraction(ROUNDED_UP) for p, q in zip(smaller, bound, strict=False)), fewer


def test_exchanging_many_elements_in_a_short_vector_may_change_fewer_bits() -> None:
    """Why the law for u elements is not enough: 12 elements cover 8 bits twice over, 3 do not."""
    many = tails(changed_bits_distribution(8, 1, REPLACE_ONE, 12, 1))
    few = tails(changed_bits_distribution(8, 1, REPLACE_ONE, 3, 1))
    assert few[3] > many[3] + Fraction(1, 10)


def test_domination_costs_nothing_where_it_is_not_needed() -> None:
    """One element, or coming and going, is calibrated by its own law; in a long vector many are nearly so too."""
    for adjacency, most in ((ADD_REMOVE, 1), (ADD_REMOVE, 5), (REPLACE_ONE, 1)):
        own = changed_bits_distribution(1000, 3, adjacency, most, 50)
        assert dominating_distribution(1000, 3, adjacency, most, 50) == own
    own = changed_bits_distribution(10**7, 3, REPLACE_ONE, 5, 10**6)
    bound = dominating_distribution(10**7, 3, REPLACE_ONE, 5, 10**6)
    assert all(abs(p - q) < Decimal("1e-4") for p, q in zip(own, bound, strict=True))


def test_does_not_depend_on_the_callers_decimal_context() -> None:
    """A caller who computes with 5 digits and every trap gets the same numbers."""
    with decimal.localcontext(
        decimal.Context(prec=5, traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation])
    ):
        rough = changed_bits_distribution(12_347, 4, REPLACE_ONE, 1, 500)
    assert len(rough[0].as_tuple().digits) > 40
    assert changed_bits_distribution(12_347, 4, REPLACE_ONE, 1, 500) == rough


def test_maximum_changed_bits() -> None:
    """u·k bits when elements come or go, twice that when they are exchanged."""
    assert maximum_changed_bits(7, ADD_REMOVE, 3) == 21
    assert maximum_changed_bits(7, REPLACE_ONE, 3) == 42


@pytest.mark.parametrize(("adjacency", "user", "product"), [(ADD_REMOVE, 9, 256), (REPLACE_ONE, 5, 128)])
def test_too_many_changed_bits_name_the_limit(adjacency: Adjacency, user: int, product: int) -> None:
    """Past W_max = 256 the refusal names the field, the product that works and the calibration that always works."""
    assert changed_bits_distribution(1 << 20, 32, adjacency, user - 1, 1)
    with pytest.raises(InvalidInput, match=rf"at most {product} .*worst-case") as caught:
        changed_bits_distribution(1 << 20, 32, adjacency, user, 1)
    assert caught.value.field == "elements_per_user"


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("bits", (7, 1, ADD_REMOVE, 1, 1)),
        ("bits", (2**40 + 1, 1, ADD_REMOVE, 1, 1)),
        ("hashes", (64, 0, ADD_REMOVE, 1, 1)),
        ("hashes", (64, 33, ADD_REMOVE, 1, 1)),
        ("adjacency", (64, 1, "swap", 1, 1)),
        ("elements_per_user", (64, 1, ADD_REMOVE, 0, 1)),
        ("min_size", (64, 1, ADD_REMOVE, 1, 0)),
        ("min_size", (64, 1, ADD_REMOVE, 1, 10**12 + 1)),
    ],
)
def test_out_of_range_is_refused(field: str, arguments: tuple[int, int, Adjacency, int, int]) -> None:
    """Every argument is checked, and the error names it."""
    with pytest.raises(InvalidInput) as caught:
        changed_bits_distribution(*arguments)
    assert caught.value.field == field
