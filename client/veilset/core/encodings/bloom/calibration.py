"""From the promise (ε, δ) to the noise: the per-bit ε0 that each calibration allows, and the threshold that gives it.

With W the number of bits one user changes, or a law that dominates it for every user (`core.encodings.bloom.occupancy`):

- ``w-quantile``: N = min{w >= 1 : P(W > w) <= δ} and ε0 = ε/N. Up to N changed bits cost at most N·ε0 <= ε; more are
  as rare as δ. The rule of Ke, Liang, Sha, Shi and Song, DPBloomfilter (arXiv:2502.00693).
- ``exact``: the largest ε0 with Σ_w P(W = w)·H_w(ε; ε0) <= δ (`privacy_profile`). Never below w-quantile, whose δ counts
  every W > N as a total loss.
- ``worst-case``: ε0 = ε/W_max. Pure ε, whatever the hash does. The rule of Alaggan, Gambs and Kermarrec, BLIP (2012).

The first two hold for a seed drawn independently of the data. Every rounding is towards more noise: ε0 down, the flip
probability up.

The privacy profile. Two vectors that differ in w bits, each bit flipped independently with probability 1/(1 + e^ε0), give
outputs whose smallest δ at ε is H_w(ε; ε0). The seed of the hash decides w and is public, so a release as a whole reaches
δ(ε) = Σ_w P(W = w)·H_w(ε; ε0), computed with 60 digits and rounded up. Source: the hockey-stick divergence of w independent
randomized responses, as in Kairouz, Oh and Viswanath, The Composition Theorem for Differential Privacy (arXiv:1311.0776),
section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache

from veilset.core.encodings.bloom.occupancy import MAX_DISTRIBUTED_BITS, dominating_distribution, maximum_changed_bits
from veilset.core.params import (
    MAX_BITS,
    MAX_EPSILON,
    MAX_HASHES,
    MIN_BITS,
    Calibration,
    PrivacyParameters,
    check_integer,
)
from veilset.core.privacy.budget import float_within
from veilset.core.privacy.exact import decimal_digits, float_rounded_up, greatest_allowed
from veilset.errors import must_be

_DIGITS = 60
_ROUNDED_UP = Decimal("1e-50")

COIN_SIDES = 1 << 64
"""A bit is flipped if and only if a uniform integer in [0, COIN_SIDES) is below the threshold."""


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


@dataclass(frozen=True, slots=True)
class CalibratedResponse:
    """The randomized response of every bit.

    epsilon0: per-bit ε, not below ln((2^64 - T)/T), which is what the threshold T really gives. threshold: T in
    [1, 2^63]. flip_probability: T/2^64, to the nearest float. changed_bits: N of the w-quantile rule (exact calibration
    has ε0 >= ε/N), or W_max for worst-case.
    """

    epsilon0: float
    threshold: int
    flip_probability: float
    changed_bits: int


def calibrate(bits: int, hashes: int, privacy: PrivacyParameters) -> CalibratedResponse:
    """The least noise with which a release of a filter of m = bits and k = hashes keeps the promise. Cached.

    The promise is what is charged: the decimals that epsilon and delta stand for, which the floats may lie above.
    Raises InvalidInput for dimensions out of range, and naming ``elements_per_user`` if W_max is too large for the
    distribution of W; the worst-case calibration has no such limit.
    """
    check_integer("bits", bits, MIN_BITS, MAX_BITS)
    check_integer("hashes", hashes, 1, MAX_HASHES)
    charged = replace(privacy, epsilon=float_within(privacy.epsilon), delta=float_within(privacy.delta))
    return _calibrate(bits, hashes, charged)


@lru_cache(maxsize=4096)
def _calibrate(bits: int, hashes: int, privacy: PrivacyParameters) -> CalibratedResponse:
    if privacy.calibration is Calibration.WORST_CASE:
        changed_bits = maximum_changed_bits(hashes, privacy.adjacency, privacy.elements_per_user)
        epsilon0 = _share(privacy.epsilon, changed_bits)
    else:
        distribution = dominating_distribution(
            bits, hashes, privacy.adjacency, privacy.elements_per_user, privacy.min_size
        )
        changed_bits = quantile_changed_bits(distribution, privacy.delta)
        epsilon0 = _share(privacy.epsilon, changed_bits)
        if privacy.calibration is Calibration.EXACT:
            epsilon0 = _exact_epsilon0(distribution, privacy.epsilon, privacy.delta, epsilon0)
    threshold = flip_threshold(epsilon0)
    return CalibratedResponse(epsilon0, threshold, threshold / COIN_SIDES, changed_bits)


def quantile_changed_bits(distribution: Sequence[Decimal], delta: float) -> int:
    """N = min{w >= 1 : P(W > w) <= delta}.

    distribution: P(W = w) for w = 0 … W_max, as from `dominating_distribution`. delta: in [0, 1].
    """
    allowed = Decimal.from_float(delta)
    with decimal_digits(60, ROUND_CEILING):
        tail = Decimal(0)
        for w in range(len(distribution) - 1, 1, -1):
            tail += distribution[w]
            if tail > allowed:
                return w
    return 1


def flip_threshold(epsilon0: float) -> int:
    """T = ceil(2^64 / (1 + e^ε0)), the smallest threshold whose flip probability T/2^64 is not below 1/(1 + e^ε0).

    epsilon0: per-bit ε in [0, 64]. T is in [1, 2^63]: at ε0 = 0 the bit says nothing; from ε0 = 44.37 on T is 1.
    Raises InvalidInput for a value out of range.
    """
    if not 0 <= epsilon0 <= MAX_EPSILON:
        raise must_be("epsilon0", f"a number in [0, {MAX_EPSILON:g}]", epsilon0)
    with decimal_digits(80, ROUND_FLOOR):
        odds = 1 + Decimal(epsilon0).exp().next_minus()  # exp is correctly rounded, so its neighbour below is a bound
    with decimal_digits(80, ROUND_CEILING):
        threshold = math.ceil(COIN_SIDES / odds)
    return min(threshold, COIN_SIDES // 2)  # 1/(1 + e^ε0) <= 1/2


def _share(epsilon: float, parts: int) -> float:
    """The largest float ε0 with parts·ε0 <= epsilon, compared without rounding."""
    share = epsilon / parts
    while Fraction(share) * parts > Fraction(epsilon):
        share = math.nextafter(share, 0)
    return share


def _exact_epsilon0(distribution: Sequence[Decimal], epsilon: float, delta: float, quantile_epsilon0: float) -> float:
    """The largest ε0 in [quantile_epsilon0, 64] that reaches at most delta."""
    if delta == 0 or quantile_epsilon0 == 0:
        return quantile_epsilon0  # with δ = 0, N is the largest w that can happen and no ε0 above ε/N is allowed
    allowed = Decimal.from_float(delta)

    def excess(epsilon0: float) -> float:
        reached = delta_bound(distribution, epsilon, epsilon0)
        relative = float(reached) / delta - 1
        return min(relative, 0.0) if reached <= allowed else max(relative, math.ulp(0.0))

    return greatest_allowed(excess, quantile_epsilon0, MAX_EPSILON)
