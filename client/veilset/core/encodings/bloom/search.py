"""Ranking settings (k, m) by estimate: a grid in log m for every k, then zooms into the best places.

The advantage is not monotone in m: where `min_size` gives credit, a shorter vector is fuller, more of a user's bits are
covered, N falls and ε0 jumps up; and under w-quantile N is a whole number, so the curve is a sawtooth. Between two
jumps a longer vector is always better. Hence the grid, and zooms that close in on the tip of a tooth.

The exact distribution of W takes a few milliseconds for each setting (`core.encodings.bloom.occupancy`), and a search looks at
thousands. So settings are ranked by a float estimate that treats the bits that count towards W as independent, W as binomial,
which is off by a relative k²/m or so. No plan promises privacy on its strength: `planner` calibrates the winners exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.law import (
    binomial_coefficients,
    binomial_tails,
    choose_thresholds,
    distinct_positions,
    expected_fill,
    expected_ones_fraction,
)
from veilset.core.encodings.bloom.occupancy import MAX_DISTRIBUTED_BITS, ROUNDED_UP, maximum_changed_bits
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import MAX_HASHES, MIN_BITS, Calibration, PrivacyParameters

_LARGEST_EPSILON0 = 44.0  # p_flip is at least 2^-64
_PROFILE_POINTS = 96
_EDGE_WIDTH = 1e-6  # relative; how closely a tip is found

Floats = NDArray[np.float64]

ALL_HASHES = range(1, MAX_HASHES + 1)
_GRID = 128
_ZOOM = 33
_ZOOM_PLACES = 48
_CLOSE = 1.0 + 1e-5
_NEGLIGIBLE = 1e-3
_FULLEST_LOAD = 16  # draws per bit above which a vector is full but for e^-16 of its bits
Good = Callable[[Floats, Floats], NDArray[np.bool_]]
"""Whether settings do, from their merits and advantages; float64 arrays (M,) in, bool (M,) out."""


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


@dataclass(frozen=True, slots=True)
class Setting:
    """A place of the search: k hashes, m bits, and the estimated merit and advantage there."""

    hashes: int
    bits: int
    merit: float
    advantage: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimated merit and advantage of one k along ascending m; float64 arrays (M,)."""

    hashes: int
    bits: Floats
    merits: Floats
    advantages: Floats

    def setting(self, place: int) -> Setting:
        """The setting at one place of the curve."""
        merit, advantage = float(self.merits[place]), float(self.advantages[place])
        return Setting(self.hashes, int(self.bits[place]), merit, advantage)


class Search:
    """The estimated merits of all settings within a request's size limit.

    grid: how many lengths of each k it begins with. hashes: the k to look at, as far as they can be calibrated.
    """

    def __init__(self, request: PlanRequest, grid: int = _GRID, hashes: Iterable[int] = ALL_HASHES) -> None:
        self._request = request
        self._estimate = CalibrationEstimate(request.privacy)
        plannable = plannable_hashes(request.privacy)
        self._curves = [self._curve(k, self._grid(k, grid)) for k in hashes if k in plannable]

    def best(self) -> list[Setting]:
        """Settings by falling estimated merit (shorter first among equals), the best places zoomed into; maybe none."""
        places = [
            (rank, -curve.merits[place], curve, int(place))
            for curve in self._curves
            for rank, place in enumerate(np.argsort(-curve.merits, kind="stable")[:3])
            if curve.merits[place] > -np.inf
        ]
        places.sort(key=lambda spot: spot[:2])  # the best place of every k, then the second best, then the third
        found = {self._zoom(curve, place) for _, _, curve, place in places[:_ZOOM_PLACES]}
        return sorted(found, key=lambda setting: (-setting.merit, setting.bits))

    def smallest(self, good: Good) -> list[Setting]:
        """For every k the shortest vector that is good(merits, advantages) by estimate; by rising m, maybe none."""
        found = []
        for coarse in self._curves:
            curve, low = coarse, float(MIN_BITS)
            while (reached := good(curve.merits, curve.advantages)).any():
                place = int(np.argmax(reached))
                low = curve.bits[place - 1] + 1.0 if place else low
                if low >= curve.bits[place]:
                    found.append(curve.setting(place))
                    break
                curve = self._curve(curve.hashes, _spaced(low, curve.bits[place]))
        return sorted(found, key=lambda setting: (setting.bits, -setting.merit))

    def _zoom(self, curve: Curve, place: int) -> Setting:
        while True:
            low = curve.bits[max(place - 1, 0)]
            high = curve.bits[min(place + 1, len(curve.bits) - 1)]
            if high - low <= 2.0 or high / low < _CLOSE:
                return curve.setting(place)
            curve = self._curve(curve.hashes, np.union1d(_spaced(low, high), curve.bits[place]))
            place = int(np.argmax(curve.merits))

    def _grid(self, hashes: int, points: int) -> Floats:
        limit = float(self._request.limit_bits)
        fullest = self._request.size * hashes / _FULLEST_LOAD
        spaced = _spaced(max(float(MIN_BITS), min(fullest, limit / 4.0)), limit, points)
        return np.union1d(spaced, self._estimate.edges(hashes, spaced))

    def _curve(self, hashes: int, bits: Floats) -> Curve:
        request = self._request
        epsilon0 = self._estimate.epsilon0(hashes, bits)
        flip = np.exp(-np.logaddexp(0.0, epsilon0))
        fraction = expected_ones_fraction(expected_fill(request.size, bits, hashes), flip)
        detected, mistaken = np.zeros(len(bits)), np.zeros(len(bits))
        feasible = np.ones(len(bits), dtype=bool)
        for distinct, chances in _likely_distinct(hashes, bits):
            members, others = binomial_tails(distinct, 1.0 - flip), binomial_tails(distinct, fraction)
            thresholds = choose_thresholds(members, others, request.rule, request.decoder_limits)[:, np.newaxis]
            detected += chances * np.take_along_axis(members, thresholds, axis=1)[:, 0]
            mistaken += chances * np.take_along_axis(others, thresholds, axis=1)[:, 0]
            if distinct == hashes and request.decoder_limits.given:
                feasible = ((thresholds >= 1) & (thresholds <= hashes))[:, 0]
        merits = np.where(feasible, request.merit(detected, mistaken), -np.inf)
        return Curve(hashes, bits, merits, detected - mistaken)


def _likely_distinct(hashes: int, bits: Floats) -> Iterator[tuple[int, Floats]]:
    """The numbers d of distinct positions that matter, and P(d) for each m of ``bits``; only k itself for long vectors."""
    if hashes * hashes / bits[0] < _NEGLIGIBLE:
        yield hashes, np.ones(len(bits))
        return
    chances = distinct_positions(bits, hashes)
    for distinct in range(1, hashes + 1):
        if distinct == hashes or chances[:, distinct].max() > 0.1 * _NEGLIGIBLE:
            yield distinct, chances[:, distinct]


def _spaced(low: float, high: float, points: int = _ZOOM) -> Floats:
    """At most ``points`` whole numbers from low to high, evenly spaced in the logarithm, without repeats."""
    spaced = np.unique(np.rint(np.geomspace(low, high, points)))
    spaced[-1] = min(spaced[-1], math.floor(high))
    return spaced
