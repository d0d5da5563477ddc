"""The noise of a promise in whole numbers: fixed-point with 1024 binary places, every sum written out from its formula.

Independent of the library, and slower; where the library may round towards more noise, this is the value itself.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

PLACES = 1024
ONE = 1 << PLACES
Law = list[int]  # P(W = w) for w = 0 …, in units of 1/ONE


def exponential(x: Fraction) -> int:
    """e^x in fixed-point, |x| up to about 100: the series at x/2^32, squared 32 times."""
    halvings = 32
    small = x.numerator * ONE // (x.denominator << halvings)
    total = term = ONE
    for n in range(1, 400):
        term = term * small // (n * ONE)
        total += term
        if term in (0, -1):
            break
    for _ in range(halvings):
        total = total * total >> PLACES
    return total


def threshold(epsilon0: float) -> int:
    """T = min(ceil(2^64 / (1 + e^ε0)), 2^63)."""
    below = ONE + exponential(Fraction(epsilon0))
    return min(-(-(1 << 64) * ONE // below), 1 << 63)


def float_at_most(value: Fraction) -> float:
    """The largest float that is not above a number."""
    nearest = float(value)
    while Fraction(nearest) > value:
        nearest = math.nextafter(nearest, -math.inf)
    return nearest


def _power(base: Fraction, exponent: int) -> int:
    result, square = ONE, base.numerator * ONE // base.denominator
    while exponent:
        if exponent & 1:
            result = result * square >> PLACES
        square = square * square >> PLACES
        exponent >>= 1
    return result


def _distinct(draws: int, bits: int) -> list[Fraction]:
    """P(c distinct values among so many uniform draws), one draw at a time."""
    chances = [Fraction(1)] + [Fraction(0)] * draws
    for _ in range(draws):
        chances = [
            chances[c] * Fraction(c, bits) + (chances[c - 1] * Fraction(bits - c + 1, bits) if c else 0)
            for c in range(draws + 1)
        ]
    return chances


def _candidates(bits: int, hashes: int, replace_one: bool, users: int) -> list[Fraction]:
    """P(c candidates), by the relation; docs/privacy.md, section 6."""
    one = _distinct(hashes * users, bits)
    if not replace_one:
        return one
    chances = [Fraction(0)] * (2 * len(one) - 1)
    for a, first in enumerate(one):
        for b, second in enumerate(one):
            if users > 1:
                chances[min(a + b, bits)] += first * second
                continue
            for common in range(max(0, a + b - bits), min(a, b) + 1):
                meet = Fraction(math.comb(a, common) * math.comb(bits - a, b - common), math.comb(bits, b))
                chances[a + b - 2 * common] += first * second * meet
    return chances


@lru_cache(maxsize=64)
def changed_bits_law(bits: int, hashes: int, replace_one: bool, users: int, min_size: int) -> tuple[int, ...]:
    """P(W = w), or of the law that dominates it."""
    draws = max(0, min_size - users) * hashes
    candidates = _candidates(bits, hashes, replace_one, users)
    missed = [_power(Fraction(max(bits - j, 0), bits), draws) for j in range(len(candidates))]
    law = [0] * len(candidates)
    for c, chance in enumerate(candidates):
        for w in range(c + 1):
            uncovered = sum((-1) ** (j - w) * math.comb(j, w) * math.comb(c, j) * missed[j] for j in range(w, c + 1))
            law[w] += chance.numerator * uncovered // chance.denominator
    return tuple(law)


def quantile(law: tuple[int, ...], delta: Fraction) -> int:
    """N = min{w ≥ 1 : P(W > w) ≤ δ}."""
    return next(w for w in range(1, len(law) + 1) if sum(law[w + 1 :]) * delta.denominator <= delta.numerator * ONE)


def reached_delta(law: tuple[int, ...], epsilon: Fraction, epsilon0: Fraction) -> int:
    """Σ P(W = w)·H_w(ε; ε0) in fixed-point; H_w as in docs/privacy.md, section 3."""
    kept = ONE * ONE // (ONE + exponential(-epsilon0))
    total = 0
    for w, chance in enumerate(law):
        for j in range(w + 1):
            if (2 * j - w) * epsilon0 > epsilon:
                mass = math.comb(w, j) * ONE
                for factor in [kept] * j + [ONE - kept] * (w - j):
                    mass = mass * factor >> PLACES
                total += chance * (mass * (ONE - exponential(epsilon - (2 * j - w) * epsilon0)) >> PLACES) >> PLACES
    return total


def exact_epsilon0(law: tuple[int, ...], epsilon: Fraction, delta: Fraction, low: Fraction) -> Fraction:
    """The largest ε0 in [low, 64] that reaches at most δ, to 60 halvings of the range."""
    high = Fraction(64)
    for _ in range(60):
        middle = (low + high) / 2
        if reached_delta(law, epsilon, middle) * delta.denominator <= delta.numerator * ONE:
            low = middle
        else:
            high = middle
    return low
