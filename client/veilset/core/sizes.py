"""How many distinct elements a release stands for: from its bits, at no charge, or better from a bought count.

Both go through the number of ones of the raw vector. n elements throw n·k marks on m bits, so about
m·(1 - (1 - 1/m)^(nk)) bits are ones; inverted, n̂ = ln(1 - ones/m) / (k·ln(1 - 1/m)). Everything here works on what was
released: it is post-processing. Intervals have both sources of doubt in them, the noise and the collisions of the marks
(whose variance is m·e^-λ·(1 - (1 + λ)·e^-λ), λ = nk/m). That from a count is a normal approximation, cut at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from veilset.core.bounded_interval import BoundedTest, check_confidence
from veilset.core.comparison import JointCounts, PairedReleases
from veilset.core.noise_laws import STANDARD_DEVIATION, CountMechanism
from veilset.core.params import FilterParameters
from veilset.core.release import NoisyCount, ReleaseHeader
from veilset.errors import InvalidInput

_ROUNDING_VARIANCE = 1 / 12


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Distinct elements, with the interval [low, high] at ``confidence``; ``source`` is "bits" or "count".

    high is infinite where the vector may be full, and a full vector cannot tell how full.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    source: str


def size_from_bits(header: ReleaseHeader, noisy_ones: int, confidence: float = 0.95) -> SizeEstimate:
    """Estimate from the noisy bits alone: ones = (noisy_ones - p·m)/(1 - 2p), unbiased, p the flip probability.

    The interval holds the sizes that `size_test` does not reject: it lies within what is possible, and is right as often
    as it says for a size of 0, too. At p = 1/2 nothing can be said: the
    interval is the whole range. Raises InvalidInput.
    """
    shape, flip = header.filter, header.flip_probability
    check_confidence(confidence)
    if flip >= 0.5:
        return SizeEstimate(0.0, 0.0, math.inf, confidence, "bits")
    test = size_test(header, noisy_ones, confidence)
    ones = (noisy_ones - flip * shape.bits) / (1 - 2 * flip)
    found = test.estimate(_size_of(shape, ones))
    high = found.high if found.high < test.high else math.inf  # full vectors look alike
    return SizeEstimate(found.estimate, found.low, high, confidence, "bits")


def size_test(header: ReleaseHeader, noisy_ones: int, confidence: float) -> BoundedTest:
    """The test of the size by the noisy bits alone: that of `veilset.core.comparison`, beside an empty set. p below 1/2."""
    flips = (header.flip_probability, header.flip_probability)
    return PairedReleases(header.filter, flips, JointCounts(noisy_ones, 0, 0), confidence).size_test(left=True)


def size_from_count(header: ReleaseHeader, confidence: float = 0.95) -> SizeEstimate:
    """Estimate from the count that the release carries. Raises InvalidInput if none was bought."""
    count = header.count
    if count is None:
        raise InvalidInput("count", "bought with the release (publish --count-epsilon)")
    check_confidence(confidence)
    return _estimate(header.filter, float(count.value), count_variance(count), confidence)


def count_variance(count: NoisyCount) -> float:
    """Variance of a bought count's noise, rounding included."""
    return (count.scale * STANDARD_DEVIATION[CountMechanism(count.mechanism)]) ** 2 + _ROUNDING_VARIANCE


def _estimate(shape: FilterParameters, ones: float, noise_variance: float, confidence: float) -> SizeEstimate:
    size = _size_of(shape, ones)
    load = size * shape.hashes / shape.bits
    collisions = shape.bits * math.exp(-load) * (1 - (1 + load) * math.exp(-load))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(noise_variance + max(0.0, collisions))
    high = _size_of(shape, ones + reach) if ones + reach < shape.bits - 0.5 else math.inf
    return SizeEstimate(size, _size_of(shape, ones - reach), high, confidence, "count")


def _size_of(shape: FilterParameters, ones: float) -> float:
    """n̂ for a (real) number of ones, moved into the range that a vector can have: 0 to all but half a bit."""
    within = min(max(ones, 0.0), shape.bits - 0.5)
    return math.log1p(-within / shape.bits) / (shape.hashes * math.log1p(-1 / shape.bits))
