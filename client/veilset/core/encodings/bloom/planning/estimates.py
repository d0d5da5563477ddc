"""A fast float estimate of the calibration, for ranking settings; no plan ever promises privacy on its strength.

The exact distribution of W takes an alternating sum in 80 digits (`core.encodings.bloom.occupancy`), a few milliseconds each; a
search looks at thousands of settings. The estimate treats the bits that count towards W as independent, so that W is
binomial, which is off by a relative k²/m or so. The winners of the ranking are then calibrated exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.accuracy import binomial_coefficients
from veilset.core.encodings.bloom.occupancy import MAX_DISTRIBUTED_BITS, ROUNDED_UP, maximum_changed_bits
from veilset.core.params import MAX_HASHES, Calibration, PrivacyParameters

_LARGEST_EPSILON0 = 44.0  # p_flip is at least 2^-64
_PROFILE_POINTS = 96
_EDGE_WIDTH = 1e-6  # relative; how closely a tip is found

Floats = NDArray[np.float64]


def plannable_hashes(privacy: PrivacyParameters) -> range:
    """The k in 1 .. 32 whose W can be calibrated; empty where only the worst-case calibration can do that many."""
    if privacy.calibration is Calibration.WORST_CASE:
        return range(1, MAX_HASHES + 1)
    each = maximum_changed_bits(1, privacy.adjacency, privacy.elements_per_user)
    return range(1, min(MAX_HASHES, MAX_DISTRIBUTED_BITS // each) + 1)


class CalibrationEstimate:
    """Estimated ε0 of many vector lengths at once, for one set of privacy parameters."""

    def __init__(self, privacy: PrivacyParameters) -> None:
        self._privacy = privacy
        self._profile: tuple[Floats, Floats] | None = None

    def epsilon0(self, hashes: int, bits: Floats) -> Floats:
        """ε0 for k = hashes and each m of ``bits``, any float64 (M,); float64 (M,), in (0, 44]."""
        privacy = self._privacy
        most = maximum_changed_bits(hashes, privacy.adjacency, privacy.elements_per_user)
        if privacy.calibration is Calibration.WORST_CASE:
            return np.full(len(bits), min(_LARGEST_EPSILON0, privacy.epsilon / most))
        masses = changed_bits_estimate(hashes, bits, privacy)
        epsilon0: Floats = privacy.epsilon / _quantiles(masses, privacy.delta)
        if privacy.calibration is Calibration.EXACT and privacy.delta > 0.0:
            epsilon0 = np.maximum(epsilon0, self._exact_epsilon0(masses))
        return np.minimum(epsilon0, _LARGEST_EPSILON0)

    def edges(self, hashes: int, bits: Floats) -> Floats:
        """Where N is about to rise: for every rise along ascending ``bits``, the last m before it; float64 (J,).

        Under w-quantile these are the tips of the sawtooth. Empty for the other calibrations, which have none.
        """
        privacy = self._privacy
        if privacy.calibration is not Calibration.W_QUANTILE:
            return np.zeros(0)
        before = _quantiles(changed_bits_estimate(hashes, bits, privacy), privacy.delta)
        rises = np.flatnonzero(np.diff(before) > 0)
        low, high, reached = bits[rises], bits[rises + 1], before[rises]
        while rises.size and (high - low > np.maximum(1.0, low * _EDGE_WIDTH)).any():
            middle = np.floor((low + high) / 2.0)
            not_yet = _quantiles(changed_bits_estimate(hashes, middle, privacy), privacy.delta) <= reached
            low, high = np.where(not_yet, middle, low), np.where(not_yet, high, middle)
        return low

    def _exact_epsilon0(self, masses: Floats) -> Floats:
        """Where E[H_W(ε; ε0)] crosses δ, by linear interpolation in a table over ε0 that all k and m share.

        The kinks at ε/w, where H_w begins to rise from 0, are points of the table.
        """
        if self._profile is None:
            privacy = self._privacy
            most = maximum_changed_bits(plannable_hashes(privacy)[-1], privacy.adjacency, privacy.elements_per_user)
            spaced = np.geomspace(privacy.epsilon / most, _LARGEST_EPSILON0, _PROFILE_POINTS)
            points = np.union1d(spaced, privacy.epsilon / np.arange(1, most + 1))
            self._profile = points, profile_table(most, privacy.epsilon, points)
        points, table = self._profile

        def reached(places: NDArray[np.int64]) -> Floats:
            return np.asarray(np.sum(masses * table[places, : masses.shape[1]], axis=1))

        # By bisection of the places, not by one matrix product: that would be put on several threads, which on a busy
        # machine wait for each other a hundred times longer than the product takes.
        below, above = np.zeros(len(masses), dtype=np.int64), np.full(len(masses), len(points) - 1)
        while (above - below > 1).any():
            middle = (below + above) // 2
            allowed = reached(middle) <= self._privacy.delta
            below, above = np.where(allowed, middle, below), np.where(allowed, above, middle)
        low, high = reached(below), reached(above)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (self._privacy.delta - low) / (high - low)
        share = np.where(high <= self._privacy.delta, 1.0, np.clip(share, 0.0, 1.0))  # the last point may be allowed
        return np.asarray(points[below] + (points[above] - points[below]) * share)


def changed_bits_estimate(hashes: int, bits: Floats, privacy: PrivacyParameters) -> Floats:
    """Estimated P(W = w), w = 0 .. W_max; float64 (M, W_max + 1): binomial, as if every draw counted independently.

    A draw counts if it is a position of its own, on average m·(1 - (1 - 1/m)^W_max)/W_max of them (a little too many for
    replace-one), and if none of the (min_size - u)·k other draws D covers it, (1 - 1/m)^D. Rounded up like the exact ones.
    """
    most = maximum_changed_bits(hashes, privacy.adjacency, privacy.elements_per_user)
    others = max(0, privacy.min_size - privacy.elements_per_user) * hashes
    miss = np.log1p(-1.0 / bits)
    counting = np.minimum(1.0, -bits * np.expm1(most * miss) / most) * np.exp(others * miss)
    # In logarithms, one exponential an entry: faster than `binomial_masses`, and 1e-12 is close enough here.
    counting = np.clip(counting, 1e-300, 1.0 - 2.0**-53)[:, np.newaxis]
    changed = np.arange(most + 1)
    with np.errstate(under="ignore"):
        logs = np.log(binomial_coefficients(most)) + changed * np.log(counting) + (most - changed) * np.log1p(-counting)
        return np.asarray(np.exp(logs) + float(ROUNDED_UP))


def _quantiles(masses: Floats, delta: float) -> NDArray[np.int64]:
    """N = min{w >= 1 : P(W > w) <= delta} of every row of P(W = w); int64 (M,)."""
    tails = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]  # P(W >= w)
    beyond = np.concatenate([tails[:, 2:], np.zeros((len(masses), 1))], axis=1)  # P(W > w), w = 1 .. W_max
    return np.asarray(1 + np.argmax(beyond <= delta, axis=1))


def profile_table(most: int, epsilon: float, points: Floats) -> Floats:
    """H_w(ε; ε0) for each ε0 of ``points`` (rows) and w = 0 .. most (columns), in floats.

    An output with i of w bits against the truth adds C(w, i)·a^w·(x^i - e^ε·x^(w-i))₊ with x = e^-ε0, a = 1/(1 + x).
    """
    powers = np.exp(-points[:, np.newaxis] * np.arange(most + 1))
    kept = 1.0 / (1.0 + powers[:, 1])
    table = np.zeros((len(points), most + 1))
    for changed in range(1, most + 1):
        against = np.arange((changed + 1) // 2)
        losses = powers[:, against] - math.exp(epsilon) * powers[:, changed - against]
        total = np.sum(binomial_coefficients(changed)[against] * np.maximum(losses, 0.0), axis=1)
        table[:, changed] = kept**changed * total
    return table
