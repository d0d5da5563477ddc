"""Budget arithmetic without rounding against the owner: ε in integer nano-units, δ as an exact fraction.

**What a float stands for.** A parameter given as the float 0.1 stands for the decimal number 0.1, the shortest that
names this float and no other (its ``repr``), not for the binary value 0.1000000000000000055. So ten charges of 0.1 fit
a budget of 1 exactly, and ten of 1e-9 fit 1e-8. A charge is this decimal, for ε rounded up to whole nano-units. The
binary value can lie above the decimal, by at most half a unit in its last place; a mechanism that is calibrated for
`float_within` of its parameters therefore never costs more than what is charged here.

**Text.** An amount of δ is stored and sent as a decimal text that names the fraction exactly. Sums of decimals are
decimals, so no sum is ever rounded. An amount has one text only: no trailing zeros, an exponent where ``decimal``
writes one.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Protocol

from veilset.errors import must_be

__all__ = [
    "NANO",
    "amount_text",
    "charge_delta",
    "charge_of",
    "float_within",
    "format_delta",
    "format_nano_epsilon",
    "parse_delta",
    "to_nano_epsilon",
]

NANO = 10**9
"""Nano-units in one unit of ε."""

_MAX_EPSILON = 1e9  # a budget, not one release; its nano-units stay far below 2^63
_MAX_DECIMALS = 1100  # the exact binary value of the smallest positive float has 1074
_DECIMAL_TEXT = re.compile(r"(0|[1-9]\d{0,1200})(\.\d{1,1200})?(e-[1-9]\d{0,3})?", re.ASCII)


def to_nano_epsilon(epsilon: float) -> int:
    """ε in nano-units: the decimal that ``epsilon`` stands for, rounded up to a whole number, at least 1.

    epsilon: in (0, 10^9], one release's or a whole budget's. Raises InvalidInput.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon <= _MAX_EPSILON:
        raise must_be("epsilon", f"a number in (0, {_MAX_EPSILON:g}]", epsilon)
    return math.ceil(_decimal_value(epsilon) * NANO)


def charge_delta(delta: float) -> Fraction:
    """δ exactly as the decimal that ``delta`` stands for, in [0, 1]. Raises InvalidInput."""
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta <= 1:
        raise must_be("delta", "a number in [0, 1]", delta)
    return _decimal_value(delta)


class Priced(Protocol):
    """What costs budget: the vector of a release, or its count."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...


def charge_of(*parts: Priced | None) -> tuple[int, Fraction]:
    """The cost of the parts of a release together, None for no part: nano-ε and exact δ."""
    bought = [part for part in parts if part is not None]
    nano_epsilon = sum(to_nano_epsilon(part.epsilon) for part in bought)
    return nano_epsilon, sum((charge_delta(part.delta) for part in bought), Fraction(0))


def float_within(value: float) -> float:
    """The largest float that is at most the decimal that a finite ``value`` stands for: itself or the next below."""
    return value if Fraction(value) <= _decimal_value(value) else math.nextafter(value, -math.inf)


def _decimal_value(value: float) -> Fraction:
    return Fraction(repr(float(value)))


def format_nano_epsilon(nano_epsilon: int) -> str:
    """ε of an amount in nano-units, as an exact decimal text without exponent."""
    sign = "-" if nano_epsilon < 0 else ""
    whole, rest = divmod(abs(nano_epsilon), NANO)
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")


def amount_text(amount: float) -> str:
    """An amount of ε or δ as text for people: six digits, rounded up, so that a charge never looks smaller."""
    return f"{float(Context(6, ROUND_CEILING).create_decimal(repr(float(amount)))):g}"


def format_delta(delta: Fraction) -> str:
    """The decimal text of ``delta`` >= 0. Raises InvalidInput if no text of at most 1100 decimals names it exactly."""
    decimals = _decimals_needed(delta.denominator)
    if delta < 0 or decimals is None:
        raise must_be("delta", f"a decimal number of at most {_MAX_DECIMALS} places, at least 0")
    if decimals == 0:
        return str(delta.numerator)
    digits = delta.numerator * 10**decimals // delta.denominator
    return str(Decimal(f"{digits}e-{decimals}")).lower()  # made from text a Decimal is exact at any length


def parse_delta(text: str) -> Fraction:
    """The fraction that ``text``, written by `format_delta`, names. Raises InvalidInput for any other text."""
    if _DECIMAL_TEXT.fullmatch(text):
        delta = Fraction(text)
        if _decimals_needed(delta.denominator) is not None and format_delta(delta) == text:
            return delta
    raise must_be("delta", "a decimal number as written by format_delta")


def _decimals_needed(denominator: int) -> int | None:
    """Digits behind the point of a reduced fraction with this denominator; None if they never end or are too many."""
    twos = (denominator & -denominator).bit_length() - 1
    fives = 0
    denominator >>= twos
    while denominator % 5 == 0 and fives <= _MAX_DECIMALS:
        denominator //= 5
        fives += 1
    decimals = max(twos, fives)
    return decimals if denominator == 1 and decimals <= _MAX_DECIMALS else None
