"""Budget arithmetic: nothing is ever undercounted, and amounts that fit as decimals fit as charges."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.privacy.budget import (
    NANO,
    charge_delta,
    float_within,
    format_delta,
    format_nano_epsilon,
    parse_delta,
    to_nano_epsilon,
)
from veilset.errors import InvalidInput

EPSILONS = st.floats(min_value=0, max_value=64, exclude_min=True)
DELTAS = st.floats(min_value=0, max_value=1)


@pytest.mark.parametrize(
    ("epsilon", "nano"),
    [
        (3, 3 * NANO),
        (0.1, 100_000_000),
        (1e-9, 1),
        (1.0000000001, 1_000_000_001),
        (0.1 + 0.2, 300_000_001),
        (5e-324, 1),
        (64.0, 64 * NANO),
        (1e9, 10**18),
    ],
)
def test_nano_epsilon_is_the_decimal_rounded_up(epsilon: float, nano: int) -> None:
    """Decimals on the nano grid are kept; all else goes up to the next point of it, never to 0."""
    assert to_nano_epsilon(epsilon) == nano


def test_ten_tenths_fit_one_exactly() -> None:
    """What adds up in decimals adds up in charges, for ε and δ alike."""
    assert 10 * to_nano_epsilon(0.1) == to_nano_epsilon(1.0)
    assert 10 * charge_delta(1e-9) == charge_delta(1e-8)
    assert sum((charge_delta(0.01) for _ in range(10)), Fraction(0)) == charge_delta(0.1)


@given(EPSILONS)
def test_a_charge_covers_the_epsilon_that_mechanisms_calibrate_for(epsilon: float) -> None:
    """The charge is at least `float_within`, less than one nano-unit above the float, and at least 1."""
    charge = Fraction(to_nano_epsilon(epsilon), NANO)
    assert charge >= Fraction(float_within(epsilon))
    assert charge >= Fraction(1, NANO)
    assert charge < Fraction(math.nextafter(epsilon, math.inf)) + Fraction(1, NANO)


@given(DELTAS)
def test_a_charge_covers_the_delta_that_mechanisms_calibrate_for(delta: float) -> None:
    """The charge is at least `float_within` and rounds to the very same float."""
    assert charge_delta(delta) >= Fraction(float_within(delta))
    assert float(charge_delta(delta)) == delta


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_float_within_is_the_float_or_its_neighbour(value: float) -> None:
    """It is at most the decimal, and the next float above it is at least the decimal."""
    within = float_within(value)
    assert within in (value, math.nextafter(value, -math.inf))
    assert Fraction(within) <= Fraction(repr(value)) <= Fraction(math.nextafter(value, math.inf))


def test_float_within_steps_down_only_where_the_binary_value_lies_above() -> None:
    """0.1 lies above its decimal, 0.3 below it, 0.5 on it."""
    assert float_within(0.1) == math.nextafter(0.1, 0)
    assert float_within(0.3) == 0.3
    assert float_within(0.5) == 0.5


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, 1.1e9, True, "1", None])
def test_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    """NaN, infinities, zero and other types do not become a charge."""
    with pytest.raises(InvalidInput, match="epsilon"):
        to_nano_epsilon(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0000001, math.nan, math.inf, False, "0", None])
def test_delta_out_of_range_is_refused(delta: float) -> None:
    """NaN, infinities, negative values and other types do not become a charge."""
    with pytest.raises(InvalidInput, match="delta"):
        charge_delta(delta)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1), "1"),
        (Fraction(10), "10"),
        (Fraction(1, 100), "0.01"),
        (Fraction(3, 10**9), "3e-9"),
        (Fraction(15, 10**9), "1.5e-8"),
        (Fraction(1, 8), "0.125"),
    ],
)
def test_delta_texts(delta: Fraction, text: str) -> None:
    """The form of the text, so that stored ledgers stay readable."""
    assert format_delta(delta) == text
    assert parse_delta(text) == delta


@given(st.lists(DELTAS, max_size=8))
def test_sums_of_delta_pass_through_text_unchanged(deltas: list[float]) -> None:
    """Text is exact: no digit of any sum is lost, whatever the magnitudes."""
    total = sum(map(charge_delta, deltas), Fraction(0))
    assert parse_delta(format_delta(total)) == total


@given(DELTAS)
def test_binary_values_have_exact_texts_too(delta: float) -> None:
    """Every float's own value, with up to 1074 decimals, survives the text."""
    assert parse_delta(format_delta(Fraction(delta))) == Fraction(delta)


@pytest.mark.parametrize("delta", [Fraction(1, 3), Fraction(-1, 10), Fraction(1, 2**1101), Fraction(1, 5**1101)])
def test_fractions_without_a_decimal_text_are_refused(delta: Fraction) -> None:
    """Never rounded in silence."""
    with pytest.raises(InvalidInput, match="delta"):
        format_delta(delta)


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "1.0", "01", "1e9", "1E-9", "1e-1", ".5", "nan", "1/3", "1_0", " 1", "1\n", "1e-99999", "1e-9999"],
)
def test_other_texts_are_refused(text: str) -> None:
    """One amount has one text, and no text makes the parser work without bound."""
    with pytest.raises(InvalidInput, match="delta"):
        parse_delta(text)


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0"), (1, "0.000000001"), (NANO, "1"), (1_500_000_000, "1.5"), (100 * NANO, "100"), (-NANO // 4, "-0.25")],
)
def test_nano_epsilon_texts(nano: int, text: str) -> None:
    """Exact decimal texts for people."""
    assert format_nano_epsilon(nano) == text
