"""Predicted rates and limits against definitions, exact fractions and simulation-free references."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from veilset.core.encodings.bloom.law import (
    binomial_masses,
    binomial_tails,
    distinct_positions,
    expected_fill,
    expected_ones_fraction,
)
from veilset.core.privacy.exact import decimal_digits
from veilset.core.privacy.limits import advantage_limit, attacker_accuracy_limit, true_positive_limit
from veilset.errors import InvalidInput

epsilons = st.floats(0.0, 1000.0)
deltas = st.floats(0.0, 1.0)
shares = st.floats(0.0, 1.0)


def test_fill_by_hand() -> None:
    """Two elements with one hash each leave a bit of four empty with chance (3/4)²."""
    assert expected_fill(2, 4, 1) == pytest.approx(7 / 16, abs=1e-15)
    assert expected_fill(0, 4, 3) == 0.0


@given(st.integers(1, 10**12), st.integers(8, 2**40), st.integers(1, 32))
def test_fill_keeps_its_accuracy_at_all_sizes(size: int, bits: int, hashes: int) -> None:
    """1 - e^(n·k·ln(1-1/m)) to 1e-9, also where the vector is all but empty or full."""
    with decimal_digits(60):
        exact = 1 - (1 - Decimal(1) / bits) ** (size * hashes)
        assert abs(Decimal(float(expected_fill(size, bits, hashes))) - exact) <= exact / 10**9


def test_ones_fraction_mixes_fill_and_flips() -> None:
    """A quarter full, a tenth flipped: 0.25·0.9 + 0.75·0.1."""
    assert expected_ones_fraction(0.25, 0.1) == pytest.approx(0.3, abs=1e-15)
    assert expected_ones_fraction([0.0, 0.5, 1.0], 0.5) == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize("trials", [0, 1, 2, 7, 32])
@pytest.mark.parametrize("chance", [0.0, 1e-9, 0.1, 0.5, 0.99, 1.0])
def test_binomial_tails_agree_with_scipy(trials: int, chance: float) -> None:
    """Every tail to a relative 1e-12, the first 1 and the last 0."""
    tails = binomial_tails(trials, chance)
    assert tails.shape == (trials + 2,)
    assert tails[0] == 1.0
    assert tails[-1] == 0.0
    assert tails == pytest.approx(binom.sf(np.arange(trials + 2) - 1, trials, chance), rel=1e-12, abs=1e-300)


def test_binomials_take_arrays() -> None:
    """A row for each probability; masses are differences of tails."""
    tails = binomial_tails(5, [[0.2], [0.7]])
    assert tails.shape == (2, 1, 7)
    assert binomial_masses(5, [[0.2], [0.7]]) == pytest.approx(tails[..., :-1] - tails[..., 1:], abs=1e-15)


def test_distinct_positions_by_counting() -> None:
    """All 4³ outcomes of three draws from four positions."""
    counts = [0, 0, 0, 0]
    for outcome in itertools.product(range(4), repeat=3):
        counts[len(set(outcome))] += 1
    assert distinct_positions(4, 3) == pytest.approx([float(Fraction(count, 64)) for count in counts], abs=1e-15)


@given(st.integers(1, 2**40), st.integers(1, 32))
def test_distinct_positions_is_a_distribution(bits: int, hashes: int) -> None:
    """Sums to 1, never more distinct positions than there are, all distinct with chance Π(1 - i/m)."""
    chances = distinct_positions(bits, hashes)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert not chances[bits + 1 :].any()
    assert chances[0] == 0.0
    assert chances[-1] == pytest.approx(math.prod(max(0.0, 1.0 - i / bits) for i in range(hashes)), rel=1e-12)


@pytest.mark.parametrize(("epsilon", "percent"), [(0.1, 52.5), (1.0, 73.1)])
def test_attacker_accuracy_without_delta(epsilon: float, percent: float) -> None:
    """e^ε/(1+e^ε), the two published figures."""
    assert attacker_accuracy_limit(epsilon, 0.0) == pytest.approx(
        math.exp(epsilon) / (1.0 + math.exp(epsilon)), rel=1e-14
    )
    assert round(100.0 * attacker_accuracy_limit(epsilon, 0.0), 1) == percent


@given(st.floats(0.0, 30.0), deltas)
def test_limits_are_the_formulas(epsilon: float, delta: float) -> None:
    """(e^ε - 1 + 2δ)/(e^ε + 1), and (e^ε + δ)/(e^ε + 1) of right guesses."""
    grown = math.exp(epsilon)
    assert advantage_limit(epsilon, delta) == pytest.approx((grown - 1.0 + 2.0 * delta) / (grown + 1.0), abs=1e-14)
    assert attacker_accuracy_limit(epsilon, delta) == pytest.approx((grown + delta) / (grown + 1.0), abs=1e-14)


@given(epsilons, deltas)
def test_limits_stay_in_range_for_any_total(epsilon: float, delta: float) -> None:
    """No overflow: the advantage is in [0, 1], and at ε = 0 it is δ."""
    assert 0.0 <= advantage_limit(epsilon, delta) <= 1.0
    assert 0.5 <= attacker_accuracy_limit(epsilon, delta) <= 1.0
    assert advantage_limit(0.0, delta) == pytest.approx(delta)


@given(epsilons, deltas)
def test_advantage_limit_is_the_largest_gap_of_the_curve(epsilon: float, delta: float) -> None:
    """TPR limit - FPR is largest where the two lines meet, FPR = (1 - δ)/(1 + e^ε), and equals the limit there."""
    corner = (1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0)))
    rates = np.append(np.linspace(0.0, 1.0, 101), corner)
    gaps = true_positive_limit(epsilon, delta, rates) - rates
    assert gaps.max() <= advantage_limit(epsilon, delta) + 1e-12
    assert gaps[-1] == pytest.approx(advantage_limit(epsilon, delta), abs=1e-9)


def test_true_positive_limit_at_the_ends() -> None:
    """δ at FPR 0, 1 at FPR 1, e^ε·FPR + δ between."""
    assert true_positive_limit(1.0, 0.01, [0.0, 0.1, 1.0]) == pytest.approx([0.01, 0.1 * math.e + 0.01, 1.0])


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(math.nan, 0.0), (-1.0, 0.0), (math.inf, 0.0), (1.0, math.nan), (1.0, -0.1), (1.0, 1.1)]
)
def test_limits_refuse_what_is_no_guarantee(epsilon: float, delta: float) -> None:
    """NaN and out-of-range values fail, naming the field."""
    with pytest.raises(InvalidInput):
        advantage_limit(epsilon, delta)
    with pytest.raises(InvalidInput):
        true_positive_limit(epsilon, delta, 0.5)
