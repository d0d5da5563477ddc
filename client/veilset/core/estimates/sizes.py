"""How many distinct elements a release stands for: from its bits, at no charge, or better from a bought count.

Both go through the number of ones of the raw vector. n elements throw n·k marks on m bits, so about
m·(1 - (1 - 1/m)^(nk)) bits are ones; inverted, n̂ = ln(1 - ones/m) / (k·ln(1 - 1/m)). Everything here works on what was
released: it is post-processing. Intervals have both sources of doubt in them, the noise and the collisions of the marks
(whose variance is σ² = m·e^-λ·(1 - (1 + λ)·e^-λ), λ = nk/m).

The interval from a count, cut at 0. The count is ones + round(X), X the noise of a known law and standard deviation s.
With z and q the two-sided α-quantiles of the standard normal law and of X, at confidence 1 - α it is off its mean by at
most r + 1/2 + (z² - 1)₊/6·(zσ/r)², where r = √((zσ)² + max(q, zs)²).
*r.* Let G, normal of variance σ², stand for the collisions. P(|X + G| > r) <= α: for normal noise q = zs, and X + G is
normal, so that this is equality. For Laplace and logistic noise it is the definition of q where σ = 0, tends to α from
below as X vanishes beside G, and was computed in between, by quadrature over σ/s and α (tests/unit/test_count_interval.py).
(To take such noise for normal, r = z·√(σ² + s²), falls short from 92% on, Laplace from 91%: the tails are heavier.)
*1/2.* Rounding moves the count by no more. *The last term.* The number of ones is skew: its third central moment lies in
[-σ², σ²]. That shifts the quantile of X + G by at most (z² - 1)/6·σ²/(its variance), to first order (Cornish and Fisher).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from veilset.core.estimates.bounded_interval import BoundedTest, check_confidence
from veilset.core.estimates.comparison import JointCounts, PairedReleases, open_ended
from veilset.core.params import FilterParameters
from veilset.core.privacy.noise_laws import STANDARD_DEVIATION, CountMechanism, two_sided_quantile
from veilset.core.release.header import NoisyCount, ReleaseHeader
from veilset.errors import InvalidInput


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
    found = open_ended(test, _size_of(shape, ones))
    return SizeEstimate(found.estimate, found.low, found.high, confidence, "bits")


def size_test(header: ReleaseHeader, noisy_ones: int, confidence: float) -> BoundedTest:
    """The test of the size by the noisy bits alone: that of `core.estimates.comparison`, beside an empty set. p below 1/2."""
    flips = (header.flip_probability, header.flip_probability)
    return PairedReleases(header.filter, flips, JointCounts(noisy_ones, 0, 0), confidence).size_test(left=True)


def size_from_count(header: ReleaseHeader, confidence: float = 0.95) -> SizeEstimate:
    """Estimate from the count that the release carries. Raises InvalidInput if none was bought."""
    count = header.count
    if count is None:
        raise InvalidInput("count", "bought with the release (publish --count-epsilon)")
    check_confidence(confidence)
    shape, ones = header.filter, float(count.value)
    reach = count_reach(count, _collisions(shape, ones), confidence)
    # The ends are other sizes, and collide otherwise.
    most = max(_collisions(shape, other) for other in (ones - reach, ones, ones + reach))
    reach = count_reach(count, most, confidence)
    high = _size_of(shape, ones + reach) if ones + reach < shape.bits - 0.5 else math.inf
    return SizeEstimate(_size_of(shape, ones), _size_of(shape, ones - reach), high, confidence, "count")


def count_reach(count: NoisyCount, collisions: float, confidence: float) -> float:
    """How far a bought count lies from its mean at most, with probability ``confidence``; see above.

    collisions: σ², the variance of the number of ones without noise. In ones.
    """
    law, z = CountMechanism(count.mechanism), -NormalDist().inv_cdf((1 - confidence) / 2)
    noise = count.scale * max(two_sided_quantile(law, confidence), z * STANDARD_DEVIATION[law])
    reach = math.hypot(z * math.sqrt(collisions), noise)
    skewness = (z * z - 1) / 6 * collisions * (z / reach) ** 2 if z > 1 else 0.0
    return reach + 0.5 + skewness


def _collisions(shape: FilterParameters, ones: float) -> float:
    """Variance of the number of ones of sets that lead to expect this number."""
    load = _size_of(shape, ones) * shape.hashes / shape.bits
    return max(0.0, shape.bits * math.exp(-load) * (1 - (1 + load) * math.exp(-load)))


def _size_of(shape: FilterParameters, ones: float) -> float:
    """n̂ for a (real) number of ones, moved into the range that a vector can have: 0 to all but half a bit."""
    within = min(max(ones, 0.0), shape.bits - 0.5)
    return math.log1p(-within / shape.bits) / (shape.hashes * math.log1p(-1 / shape.bits))
