"""How many distinct elements a noisy vector stands for: post-processing, at no charge.

n elements throw n·k marks on m bits, so about m·(1 - (1 - 1/m)^(nk)) bits of the raw vector are ones; inverted,
n̂ = ln(1 - ones/m) / (k·ln(1 - 1/m)).
"""

from __future__ import annotations

import math

from veilset.core.encodings.bloom.comparison import JointCounts, PairedReleases, open_ended
from veilset.core.estimates.bounded_interval import BoundedTest, check_confidence
from veilset.core.estimates.results import SizeEstimate


def size_from_ones(
    bits: int, hashes: int, flip_probability: float, noisy_ones: int, confidence: float = 0.95
) -> SizeEstimate:
    """Estimate from the noisy bits alone: ones = (noisy_ones - p·m)/(1 - 2p), unbiased, p the flip probability.

    The interval holds the sizes that `size_test` does not reject: it lies within what is possible, and is right as often
    as it says for a size of 0, too. At p = 1/2 nothing can be said: the interval is the whole range. Raises InvalidInput.
    """
    check_confidence(confidence)
    if flip_probability >= 0.5:
        return SizeEstimate(0.0, 0.0, math.inf, confidence, "bits")
    test = size_test(bits, hashes, flip_probability, noisy_ones, confidence)
    ones = (noisy_ones - flip_probability * bits) / (1 - 2 * flip_probability)
    within = min(max(ones, 0.0), bits - 0.5)
    found = open_ended(test, math.log1p(-within / bits) / (hashes * math.log1p(-1 / bits)))
    return SizeEstimate(found.estimate, found.low, found.high, confidence, "bits")


def size_test(bits: int, hashes: int, flip_probability: float, noisy_ones: int, confidence: float) -> BoundedTest:
    """The test of the size: that of `comparison`, beside an empty set. p below 1/2."""
    flips = (flip_probability, flip_probability)
    return PairedReleases(bits, hashes, flips, JointCounts(noisy_ones, 0, 0), confidence).size_test(left=True)
