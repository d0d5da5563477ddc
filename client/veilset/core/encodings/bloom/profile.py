"""The privacy profile of W randomized responses: for which δ are they (ε, δ)-private?

Two vectors that differ in w bits, each bit flipped independently with probability 1/(1 + e^ε0), give outputs whose
smallest δ at ε is H_w(ε; ε0). The seed of the hash decides w and is public, so a release as a whole reaches
δ(ε) = Σ_w P(W = w)·H_w(ε; ε0). Everything here is computed with 60 digits and rounded up. Source: the hockey-stick
divergence of w independent randomized responses, as in Kairouz, Oh and Viswanath, The Composition Theorem for
Differential Privacy (arXiv:1311.0776), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

from veilset.core.encodings.bloom.occupancy import MAX_DISTRIBUTED_BITS
from veilset.core.params import MAX_EPSILON, check_integer
from veilset.core.privacy.exact import decimal_digits, float_rounded_up
from veilset.errors import must_be

_DIGITS = 60
_ROUNDED_UP = Decimal("1e-50")


def privacy_profile(changed_bits: int, epsilon: float, epsilon0: float) -> float:
    """H_w(ε; ε0), the smallest δ at which w = ``changed_bits`` randomized responses are (ε, δ)-private; rounded up.

    H_w(ε; ε0) = Σ_j C(w, j) a^j (1 - a)^(w-j) (1 - e^(ε - (2j - w)·ε0))₊ with a = 1/(1 + e^-ε0).
    changed_bits: in [0, 256]. epsilon: finite, at least 0 (at 0, H is the total variation distance). epsilon0: per-bit
    ε in [0, 64]. Exactly 0 where w·ε0 <= ε. Raises InvalidInput for a value out of range.
    """
    check_integer("changed_bits", changed_bits, 0, MAX_DISTRIBUTED_BITS)
    return reached_delta((Decimal(0),) * changed_bits + (Decimal(1),), epsilon, epsilon0)


def reached_delta(distribution: Sequence[Decimal], epsilon: float, epsilon0: float) -> float:
    """Σ_w P(W = w)·H_w(ε; ε0), the δ that a release reaches at ε; rounded up, at most 1.

    distribution: P(W = w) for w = 0 … W_max <= 256, as from `changed_bits_distribution`. epsilon: finite, at least 0.
    epsilon0: per-bit ε in [0, 64]. Raises InvalidInput for a value out of range.
    """
    if not 1 <= len(distribution) <= MAX_DISTRIBUTED_BITS + 1:
        raise must_be("distribution", f"1 to {MAX_DISTRIBUTED_BITS + 1} probabilities", len(distribution))
    if not 0 <= epsilon < math.inf:
        raise must_be("epsilon", "a finite number, at least 0", epsilon)
    if not 0 <= epsilon0 <= MAX_EPSILON:
        raise must_be("epsilon0", f"a number in [0, {MAX_EPSILON:g}]", epsilon0)
    return float_rounded_up(delta_bound(distribution, float(epsilon), float(epsilon0)))


def delta_bound(distribution: Sequence[Decimal], epsilon: float, epsilon0: float) -> Decimal:
    """`reached_delta` before it becomes a float, and without its checks.

    An output with i of w bits against the truth has the privacy loss (w - 2i)·ε0 and counts only if that is above ε.
    With x = e^-ε0 its summand is C(w, i)·a^w·(x^i - e^ε·x^(w-i)). Every operation is off by less than 10^-59 of its
    result and every product is made of less than 1000 of them. Σ_i C(w, i)·a^w·x^i = 1, and what is subtracted is
    smaller term by term: the sum is off by less than 10^-55, and the 10^-50 added at the end covers that.
    """
    free_bits = _largest_multiple(epsilon, epsilon0)
    if free_bits is None or not any(distribution[free_bits + 1 :]):
        return Decimal(0)  # no output that can happen has a loss above ε
    with decimal_digits(_DIGITS):
        x = Decimal(-epsilon0).exp()
        exp_epsilon = Decimal(epsilon).exp()
        powers = _powers(x, len(distribution))
        scaled = [exp_epsilon * power for power in powers]
        kept_powers = _powers(1 / (1 + x), len(distribution))
        total = Decimal(0)
        for w in range(free_bits + 1, len(distribution)):
            if not distribution[w]:
                continue
            choose = _binomials(w)
            counted = range((w - free_bits + 1) // 2)  # the i with w - 2i > free_bits
            profile = sum((choose[i] * (powers[i] - scaled[w - i]) for i in counted), Decimal(0))
            total += distribution[w] * kept_powers[w] * profile
        return min(Decimal(1), total + _ROUNDED_UP)


def _largest_multiple(epsilon: float, epsilon0: float) -> int | None:
    """The largest integer w with w·ε0 <= ε, found without rounding; None if there is no largest."""
    if epsilon0 == 0:
        return None
    numerator, denominator = epsilon.as_integer_ratio()
    numerator0, denominator0 = epsilon0.as_integer_ratio()
    return numerator * denominator0 // (denominator * numerator0)


def _powers(base: Decimal, count: int) -> list[Decimal]:
    """base^0 … base^(count-1)."""
    powers = [Decimal(1)]
    for _ in range(count - 1):
        powers.append(powers[-1] * base)
    return powers


@lru_cache(maxsize=MAX_DISTRIBUTED_BITS + 1)
def _binomials(w: int) -> tuple[Decimal, ...]:
    """C(w, i) for i = 0 … w/2."""
    return tuple(Decimal(math.comb(w, i)) for i in range(w // 2 + 1))
