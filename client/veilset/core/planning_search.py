"""Ranking settings (k, m) by estimate: a grid in log m for every k, then zooms into the best places.

The advantage is not monotone in m: where `min_size` gives credit, a shorter vector is fuller, more of a user's bits are
covered, N falls and ε0 jumps up; and under w-quantile N is a whole number, so the curve is a sawtooth. Between two
jumps a longer vector is always better. Hence the grid, and zooms that close in on the tip of a tooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.accuracy import binomial_tails, expected_fill, expected_ones_fraction
from veilset.core.decoding import Rule
from veilset.core.params import MIN_BITS
from veilset.core.planning_estimates import CalibrationEstimate, plannable_hashes
from veilset.core.planning_request import PlanRequest

_GRID = 128
_ZOOM = 33
_ZOOM_PLACES = 24
_CLOSE = 1.0 + 1e-5
_FULLEST_LOAD = 16  # draws per bit above which a vector is full but for e^-16 of its bits

Floats = NDArray[np.float64]
Good = Callable[[Floats, Floats], NDArray[np.bool_]]
"""Whether settings do, from their merits and advantages; float64 arrays (M,) in, bool (M,) out."""


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
    """The estimated merits of all settings within a request's size limit; ``grid`` lengths for each k to begin with."""

    def __init__(self, request: PlanRequest, grid: int = _GRID) -> None:
        self._request = request
        self._estimate = CalibrationEstimate(request.privacy)
        self._curves = [self._curve(hashes, self._grid(hashes, grid)) for hashes in plannable_hashes(request.privacy)]

    def best(self) -> list[Setting]:
        """Settings by falling estimated merit (shorter first among equals), the best places zoomed into; maybe none."""
        places = [
            (curve, place)
            for curve in self._curves
            for place in np.argsort(-curve.merits, kind="stable")[:3]
            if curve.merits[place] > -np.inf
        ]
        places.sort(key=lambda spot: -spot[0].merits[spot[1]])
        found = {self._zoom(curve, int(place)) for curve, place in places[:_ZOOM_PLACES]}
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
            curve = self._curve(curve.hashes, _spaced(low, high))
            place = int(np.argmax(curve.merits))

    def _grid(self, hashes: int, points: int) -> Floats:
        limit = float(self._request.limit_bits)
        fullest = self._request.size * hashes / _FULLEST_LOAD
        return _spaced(max(float(MIN_BITS), min(fullest, limit / 4.0)), limit, points)

    def _curve(self, hashes: int, bits: Floats) -> Curve:
        epsilon0 = self._estimate.epsilon0(hashes, bits)
        flip = np.exp(-np.logaddexp(0.0, epsilon0))
        fraction = expected_ones_fraction(expected_fill(self._request.size, bits, hashes), flip)
        first = hashes if self._request.rule is Rule.ALL_ONES else 1
        detected = binomial_tails(hashes, 1.0 - flip)[:, first : hashes + 1]
        mistaken = binomial_tails(hashes, fraction)[:, first : hashes + 1]
        merits = self._request.objective.merit(detected, mistaken)
        threshold = np.argmax(merits, axis=1)[:, np.newaxis]
        best = np.take_along_axis(merits, threshold, axis=1)[:, 0]
        advantages = np.take_along_axis(detected - mistaken, threshold, axis=1)[:, 0]
        return Curve(hashes, bits, best, advantages)


def _spaced(low: float, high: float, points: int = _ZOOM) -> Floats:
    """At most ``points`` whole numbers from low to high, evenly spaced in the logarithm, without repeats."""
    spaced = np.unique(np.rint(np.geomspace(low, high, points)))
    spaced[-1] = min(spaced[-1], math.floor(high))
    return spaced
