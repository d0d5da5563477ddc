"""How many elements of a list are in the set behind a linear release: post-processing, at no charge.

Of r listed elements, c of them in the set, T are answered yes. The answers are independent but for rows that meet, so T has the
mean c·TPR + (r-c)·FPR and the variance c·TPR·(1-TPR) + (r-c)·FPR·(1-FPR).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.decoder import Law
from veilset.core.estimates.bounded_interval import BoundedTest, Spread
from veilset.core.estimates.results import Overlap

_LEAST_DEVIATION = 1e-6


def estimate_overlap(law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
    """Common elements of a list and the set; found: how many of the list were answered no and yes, int64 (2,).

    A saturated vector shows nothing: the interval is [0, listed] then. Raises InvalidInput for a confidence out of range.
    """
    listed, yes = int(found.sum()), float(found[1])
    detected, mistaken = (0.0, 0.0) if law.saturated else (float(law.members[1]), float(law.others[1]))

    def spread(common: float) -> Spread:
        parts = [(common, detected), (listed - common, mistaken)]
        deviation = math.sqrt(sum(count * p * (1.0 - p) for count, p in parts)) + _LEAST_DEVIATION
        return Spread(deviation, sum(count * p * (1.0 - p) * (1.0 - 2.0 * p) for count, p in parts) / deviation**3)

    def mean(common: float) -> float:
        return common * detected + (listed - common) * mistaken

    test = BoundedTest(0.0 if law.saturated else yes, mean, spread, 0.0, float(listed), confidence)
    unbiased = (yes - listed * mistaken) / (detected - mistaken) if detected > mistaken else 0.0
    seen = test.estimate(unbiased)
    low, high = min(seen.low, math.floor(seen.estimate)), max(seen.high, math.ceil(seen.estimate))
    return Overlap(seen.estimate, low, high, seen.confidence, listed, unbiased)
