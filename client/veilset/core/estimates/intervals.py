"""Confidence intervals for a quantity that cannot leave [low, high], such as a number of common elements.

Theory of operation. An interval is the set of all values that a test does not reject (Neyman's construction), so it
holds the truth as often as the test accepts it, wherever the truth lies. Two shortcuts are avoided: cutting an ordinary
interval at 0 gives empty answers when the noise pulls the estimate below 0, and widening those until they hold 0 makes
the interval hold a true 0 in 97.5% of all cases where 95% was asked for. Here the test weighs an outcome by its
likelihood ratio against the best value *within* [low, high]: G. Feldman and R. Cousins, "Unified approach to the
classical statistical analysis of small signals", Physical Review D 57 (1998), section IV.B. Near a bound it turns from
two-sided to one-sided by itself. So an interval is never empty, lies within [low, high], holds the best value, and has
the nominal coverage at the bounds, too.

The statistic is a sum in units of one count. It is taken for normal after its skewness is removed by the cube root of
Wilson and Hilferty (PNAS 17, 1931), right to the third moment. Where its standard deviation is below 6 counts, so that
single counts matter, a continuity correction keeps the coverage from falling below the nominal one; it is above then,
as with every exact interval for counts.

Where a binomial count lies with a given confidence, from its exact distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from veilset.core.params import check_integer
from veilset.core.privacy.exact import greatest_allowed
from veilset.errors import must_be

_NORMAL = NormalDist()
_LEAST_SKEWNESS, _MOST_SKEWNESS = 1e-4, 1.0
_FIRST_OFFSET = 1e-12
_LEVEL_WIDTH = 1e-10
_NO_ROOM = 1e-9

MAX_TRIALS = 10**7


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the interval [low, high], which holds the truth with probability ``confidence``.

    The estimate lies within the interval, and both within what is possible.
    """

    estimate: float
    low: float
    high: float
    confidence: float

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviation (above 0, in counts) and skewness of a statistic."""

    deviation: float
    skewness: float = 0.0


@dataclass(frozen=True, slots=True)
class BoundedTest:
    """The test of one observation, whose accepted values are the interval.

    observed: the statistic. mean, spread: of the statistic if the sought value were a given one in [low, high]; the mean
    must not fall as the value grows. confidence: in (0, 1). Raises InvalidInput.
    """

    observed: float
    mean: Callable[[float], float]
    spread: Callable[[float], Spread]
    low: float
    high: float
    confidence: float
    _bounds: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        object.__setattr__(self, "_bounds", (self.mean(self.low), self.mean(self.high)))

    def accepts(self, value: float) -> bool:
        """Whether ``value``, in [low, high], is in the interval."""
        return self._excess(value) <= 0.0

    def estimate(self, best: float) -> Estimate:
        """The interval around the best value: that whose mean is what was observed, moved into [low, high]."""
        within = min(max(best, self.low), self.high)
        return Estimate(within, self._end(within, self.low), self._end(within, self.high), self.confidence)

    def _end(self, best: float, bound: float) -> float:
        """The last accepted value on the way from the best value to a bound."""
        if best == bound or self.accepts(bound):
            return bound
        way = bound - best

        def excess(share: float) -> float:
            return self._excess(best + way * share)

        return best + way * greatest_allowed(excess, _FIRST_OFFSET, 1.0) if excess(_FIRST_OFFSET) <= 0.0 else best

    def _excess(self, value: float) -> float:
        """How far the observation is outside the acceptance region of ``value``, as a log-likelihood ratio."""
        mean, spread = self.mean(value), self.spread(value)
        below = max(0.0, mean - self._bounds[0]) / spread.deviation
        above = max(0.0, self._bounds[1] - mean) / spread.deviation
        away = self.observed - mean
        counted = math.copysign(max(0.0, abs(away) - half_step(spread.deviation)), away)
        z = without_skewness(counted / spread.deviation, spread.skewness)
        return _distance(abs(z), above if z > 0.0 else below) - acceptance_level(below, above, self.confidence)


def check_confidence(confidence: float) -> float:
    """Return ``confidence`` as a float if it is in (0, 1), else raise InvalidInput."""
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0.0 < confidence < 1.0:
        raise must_be("confidence", "a number in (0, 1)", confidence)
    return float(confidence)


def finite_or_none(end: float) -> float | None:
    """An end of an interval for JSON, which has no infinity: None instead."""
    return None if math.isinf(end) else end


def confidence_text(confidence: float) -> str:
    """In per cent, with as many digits as it was given with: 99.9% is not rounded to 100%."""
    return f"{100 * confidence:.12g}%"


def half_step(deviation: float) -> float:
    """The continuity correction: half a count up to a standard deviation of 3 counts, fading to none at 6."""
    return 0.5 * min(1.0, max(0.0, 2.0 - deviation / 3.0))


def without_skewness(x: float, skewness: float) -> float:
    """A value of a skew law of mean 0 and variance 1 → the standard normal value of about the same tail probability.

    (6/γ)·((1 + γx/2)^(1/3) - 1) + γ/6: the cube root of Wilson and Hilferty for a gamma law of skewness γ, mirrored for
    γ < 0; x itself at γ = 0. It grows with x. |γ| above 1 is taken for 1: so skew a law is a matter of single counts.
    """
    if abs(skewness) < _LEAST_SKEWNESS:
        return x
    gamma = min(max(skewness, -_MOST_SKEWNESS), _MOST_SKEWNESS)
    return 6.0 / gamma * (math.cbrt(1.0 + gamma * x / 2.0) - 1.0) + gamma / 6.0


def acceptance_level(below: float, above: float, confidence: float) -> float:
    """The level t for which {z : distance of z <= t} has the probability ``confidence`` under the standard normal law.

    below, above: standard deviations between the tested value and the two bounds, at least 0. Where both are large
    t = z²/2, that of the ordinary two-sided test.
    """
    ordinary = -_NORMAL.inv_cdf((1.0 - confidence) / 2.0)
    refused, allowed = 0.0, ordinary * ordinary / 2.0
    if min(below, above) >= ordinary or max(below, above) < _NO_ROOM:  # no bound in sight, or nothing to tell apart
        return allowed
    level = allowed
    while allowed - refused > _LEVEL_WIDTH * allowed:
        up, down = _reach(level, above), _reach(level, below)
        excess = _NORMAL.cdf(up) - _NORMAL.cdf(-down) - confidence
        if excess >= 0.0:
            allowed = level
        else:
            refused = level
        slope = _density_over(up, above) + _density_over(down, below)
        newton = level - excess / slope if slope > 0.0 else refused
        if abs(newton - level) < _LEVEL_WIDTH * level:
            return min(max(newton, refused), allowed)
        level = newton if refused < newton < allowed else (refused + allowed) / 2.0
    return allowed


def _density_over(z: float, room: float) -> float:
    """The normal density at z over the slope min(z, room) of the distance there; 0 where z is infinite."""
    return math.exp(-z * z / 2.0) / (math.sqrt(2.0 * math.pi) * min(z, room)) if z < math.inf else 0.0


def _distance(z: float, room: float) -> float:
    """Minus the log-likelihood ratio of the tested value to the best possible one, z >= 0 standard deviations away.

    Within ``room`` the best value fits exactly; beyond it the best value is the bound.
    """
    return z * z / 2.0 if z <= room else room * (z - room / 2.0)


def _reach(level: float, room: float) -> float:
    """The z at which the distance is ``level``."""
    if not room > 0.0:
        return math.inf
    within = math.sqrt(2.0 * level)
    return within if within <= room else level / room + room / 2.0


def binomial_interval(trials: int, probability: float, confidence: float) -> tuple[int, int]:
    """The central interval [low, high] of Binomial(trials, probability): each tail outside is at most (1-confidence)/2.

    trials in [1, 10^7], probability in [0, 1], confidence in (0, 1). Time and memory are linear in trials.
    """
    check_integer("trials", trials, 1, MAX_TRIALS)
    if not 0 <= probability <= 1:
        raise must_be("probability", "a number in [0, 1]", probability)
    if not 0 < confidence < 1:
        raise must_be("confidence", "a number in (0, 1)", confidence)
    if probability in (0.0, 1.0):
        return round(trials * probability), round(trials * probability)
    tail = (1 - confidence) / 2
    cumulative = np.cumsum(_probabilities(trials, probability))
    low = int(np.searchsorted(cumulative, tail, side="right"))
    high = int(np.searchsorted(cumulative, 1 - tail, side="left"))
    return low, min(high, trials)


def _probabilities(trials: int, probability: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """P(X = i), i = 0 … trials, from the ratios of neighbours, so that nothing under- or overflows."""
    i = np.arange(trials, dtype=np.float64)
    ratios = np.log((trials - i) / (i + 1)) + np.log(probability) - np.log1p(-probability)
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(logs - logs.max())
    normalized: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return normalized
