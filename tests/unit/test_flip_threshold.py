"""The integer threshold against the ideal flip probability, in exact comparisons."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veilset.core.encodings.bloom.calibration import COIN_SIDES, flip_threshold
from veilset.errors import InvalidInput

# The ideal probability is enclosed from both sides with 60 digits.
DOWN, UP = Context(prec=60, rounding=ROUND_FLOOR), Context(prec=60, rounding=ROUND_CEILING)


def ideal_flip_probability(epsilon0: float) -> tuple[Decimal, Decimal]:
    """1/(1 + e^ε0), from below and from above."""
    power = DOWN.exp(Decimal(epsilon0))
    low = DOWN.divide(Decimal(1), UP.add(Decimal(1), power.next_plus(UP)))
    high = UP.divide(Decimal(1), DOWN.add(Decimal(1), power.next_minus(DOWN)))
    return low, high


def assert_is_the_ceiling(epsilon0: float) -> None:
    threshold = flip_threshold(epsilon0)
    low, high = ideal_flip_probability(epsilon0)
    assert 1 <= threshold <= COIN_SIDES // 2
    assert Decimal(threshold) >= UP.multiply(high, Decimal(COIN_SIDES))
    assert Decimal(threshold - 1) < DOWN.multiply(low, Decimal(COIN_SIDES))


def test_threshold_is_the_ceiling_on_a_grid() -> None:
    """4000 values from 1e-9 to 50, evenly spaced in the logarithm: never too little noise, nor a step too much."""
    steps = 4000
    for step in range(steps):
        epsilon0 = min(50.0, 1e-9 * (50 / 1e-9) ** (step / (steps - 1)))
        assert_is_the_ceiling(epsilon0)


@settings(max_examples=1000)
@given(st.floats(1e-9, 50))
@example(1e-9)
@example(50.0)
@example(math.log(3))
@example(math.log(2**63 - 1))
def test_threshold_is_the_ceiling(epsilon0: float) -> None:
    """The same for whatever floats hypothesis finds."""
    assert_is_the_ceiling(epsilon0)


@pytest.mark.parametrize("epsilon0", [0.0, 5e-324, 1e-300, 1e-60, 1e-30, 1e-19])
def test_no_budget_is_a_fair_coin(epsilon0: float) -> None:
    """ε0 too small to move the ceiling gives exactly one half, not a step beyond it."""
    assert flip_threshold(epsilon0) == 1 << 63


def test_some_noise_is_always_left() -> None:
    """However large ε0 is, a bit can still flip."""
    assert flip_threshold(44.37) == flip_threshold(64.0) == 1
    assert flip_threshold(44.36) == 2


@given(st.floats(0, 64), st.floats(0, 64))
def test_more_budget_is_less_noise(one: float, two: float) -> None:
    """T never grows with ε0."""
    low, high = sorted((one, two))
    assert flip_threshold(low) >= flip_threshold(high)


@pytest.mark.parametrize("epsilon0", [-1e-9, 64.000001, math.inf, -math.inf, math.nan])
def test_out_of_range_is_refused(epsilon0: float) -> None:
    """NaN and infinity included."""
    with pytest.raises(InvalidInput, match="epsilon0"):
        flip_threshold(epsilon0)
