"""Decimal arithmetic and root finding for numbers that a privacy claim rests on: directed, and never silently NaN or 0."""

from __future__ import annotations

import math
from collections.abc import Callable
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

_RELATIVE_WIDTH = 1e-15
_FIRST_STEP = 1.5


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


def greatest_allowed(excess: Callable[[float], float], low: float, high: float) -> float:
    """The greatest x in [low, high] with excess(x) <= 0: never above it, and below it by a relative 3e-15 at most.

    excess: non-decreasing, costly to call; above 0 means not allowed. low: above 0 and known to be allowed; it is
    returned if nothing larger passes. Everything else that is returned has been evaluated and has passed.

    The bracket is widened from ``low`` by growing steps, then narrowed by Chandrupatla's method (Advances in
    Engineering Software 28, 1997): inverse quadratic interpolation where the last three points allow it, else
    bisection.
    """
    if excess(high) <= 0:
        return high
    allowed, allowed_excess = low, min(0.0, excess(low))
    step = _FIRST_STEP
    while True:
        refused = min(high, allowed * step)
        refused_excess = excess(refused)
        if refused_excess > 0:
            return _narrow(excess, allowed, allowed_excess, refused, refused_excess)
        allowed, allowed_excess = refused, refused_excess
        step *= step


def _narrow(
    excess: Callable[[float], float], allowed: float, allowed_excess: float, refused: float, refused_excess: float
) -> float:
    """Chandrupatla's iteration; ``newest`` and ``other`` stay on different sides of the root."""
    newest, newest_excess = refused, refused_excess
    other, other_excess = allowed, allowed_excess
    fraction = 0.5
    while True:
        x = newest + fraction * (other - newest)
        if x in (newest, other):
            break
        value = excess(x)
        if (value > 0) == (newest_excess > 0):
            dropped, dropped_excess = newest, newest_excess
        else:
            dropped, dropped_excess = other, other_excess
            other, other_excess = newest, newest_excess
        newest, newest_excess = x, value
        margin = _RELATIVE_WIDTH * max(newest, other) / abs(other - newest)
        if margin > 0.5:
            break
        fraction = _interpolated(newest, newest_excess, other, other_excess, dropped, dropped_excess)
        fraction = min(1 - margin, max(margin, fraction))
    return other if newest_excess > 0 else newest


def _interpolated(a: float, fa: float, b: float, fb: float, c: float, fc: float) -> float:
    """Where between a (0) and b (1) to look next; 0.5 unless inverse quadratic interpolation is safe.

    a is the newest point, b the one across the root, c the one dropped last. Equal or infinite values give 0.5.
    """
    if len({fa, fb, fc}) < 3 or not math.isfinite(fa + fb + fc):
        return 0.5
    place = (a - b) / (c - b)
    height = (fa - fb) / (fc - fb)
    if not (height * height < place and (1 - height) ** 2 < 1 - place):
        return 0.5
    return fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
