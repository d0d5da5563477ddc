"""Decimal arithmetic for numbers that a privacy claim rests on: wide enough, directed, and never silently NaN or 0."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)


def decimal_digits(digits: int, rounding: str = ROUND_HALF_EVEN) -> AbstractContextManager[Context]:
    """A block whose Decimal operations keep ``digits`` significant digits, whatever context the caller has set.

    Exponents reach ±10^18, so no probability underflows. Infinity and NaN raise. (exp, ln and power round half-even
    under every ``rounding``; the four basic operations follow it.)
    """
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return localcontext(Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=traps))


def float_rounded_up(value: Decimal) -> float:
    """The smallest float that is not below ``value``."""
    nearest = float(value)
    return nearest if Decimal.from_float(nearest) >= value else math.nextafter(nearest, math.inf)
