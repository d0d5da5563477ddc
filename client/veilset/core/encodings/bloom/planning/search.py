"""Ranking settings (k, m) by estimate: a grid in log m for every k, then zooms into the best places.

The advantage is not monotone in m: where `min_size` gives credit, a shorter vector is fuller, more of a user's bits are
covered, N falls and ε0 jumps up; and under w-quantile N is a whole number, so the curve is a sawtooth. Between two
jumps a longer vector is always better. Hence the grid, and zooms that close in on the tip of a tooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.accuracy import (
    binomial_tails,
    distinct_positions,
    expected_fill,
    expected_ones_fraction,
)
from veilset.core.encodings.bloom.law import choose_thresholds
from veilset.core.encodings.bloom.planning.estimates import CalibrationEstimate, plannable_hashes
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import MAX_HASHES, MIN_BITS

ALL_HASHES = range(1, MAX_HASHES + 1)

_GRID = 128
_ZOOM = 33
_ZOOM_PLACES = 48
_CLOSE = 1.0 + 1e-5
_NEGLIGIBLE = 1e-3
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
