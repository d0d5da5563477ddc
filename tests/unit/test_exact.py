"""Directed decimal arithmetic."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, DivisionByZero, InvalidOperation, getcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.privacy.exact import decimal_digits, float_rounded_up


@given(st.floats(0, 1), st.decimals(0, 1, places=30))
def test_float_rounded_up_is_the_least_float_not_below(base: float, fraction: Decimal) -> None:
    """Never below the decimal, and the next smaller float is."""
    with decimal_digits(400):
        value = Decimal(base) + (Decimal(math.nextafter(base, 2)) - Decimal(base)) * fraction
    rounded = float_rounded_up(value)
    assert rounded >= value
    assert math.nextafter(rounded, -1) < value


def test_rounding_goes_the_way_asked() -> None:
    """The same quotient from both sides; the caller's own context is back afterwards."""
    before = getcontext().prec
    with decimal_digits(5, ROUND_FLOOR):
        low = Decimal(1) / 3
    with decimal_digits(5, ROUND_CEILING):
        high = Decimal(1) / 3
    assert (low, high) == (Decimal("0.33333"), Decimal("0.33334"))
    assert getcontext().prec == before


def test_tiny_numbers_survive_and_nonsense_raises() -> None:
    """(7/8)^(3.2e13) is not 0; 0/0 and 1/0 are errors, not NaN and infinity."""
    with decimal_digits(60):
        assert (Decimal(7) / 8) ** (32 * 10**12) > 0
        with pytest.raises(InvalidOperation):
            Decimal(0) / 0
        with pytest.raises(DivisionByZero):
            Decimal(1) / 0
