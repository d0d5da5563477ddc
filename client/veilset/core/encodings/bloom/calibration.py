"""From the promise (ε, δ) to the noise: the per-bit ε0 that each calibration allows, and the threshold that gives it.

With W the number of bits one user changes, or a law that dominates it for every user (`core.encodings.bloom.occupancy`):

- ``w-quantile``: N = min{w >= 1 : P(W > w) <= δ} and ε0 = ε/N. Up to N changed bits cost at most N·ε0 <= ε; more are
  as rare as δ. The rule of Ke, Liang, Sha, Shi and Song, DPBloomfilter (arXiv:2502.00693).
- ``exact``: the largest ε0 with Σ_w P(W = w)·H_w(ε; ε0) <= δ (`core.encodings.bloom.profile`). Never below w-quantile, whose
  δ counts every W > N as a total loss.
- ``worst-case``: ε0 = ε/W_max. Pure ε, whatever the hash does. The rule of Alaggan, Gambs and Kermarrec, BLIP (2012).

The first two hold for a seed drawn independently of the data. Every rounding is towards more noise: ε0 down, the flip
probability up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache

from veilset.core.encodings.bloom.occupancy import dominating_distribution, maximum_changed_bits
from veilset.core.encodings.bloom.profile import delta_bound, privacy_profile, reached_delta
from veilset.core.params import (
    MAX_BITS,
    MAX_EPSILON,
    MAX_HASHES,
    MIN_BITS,
    Calibration,
    PrivacyParameters,
    check_integer,
)
from veilset.core.privacy.bracketing import greatest_allowed
from veilset.core.privacy.budget import float_within
from veilset.core.privacy.exact import decimal_digits
from veilset.errors import must_be

__all__ = [
    "COIN_SIDES",
    "CalibratedResponse",
    "calibrate",
    "flip_threshold",
    "privacy_profile",
    "quantile_changed_bits",
    "reached_delta",
]

COIN_SIDES = 1 << 64
"""A bit is flipped if and only if a uniform integer in [0, COIN_SIDES) is below the threshold."""


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
