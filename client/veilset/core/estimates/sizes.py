"""How many distinct elements a release stands for, from the count that was bought with it: post-processing.

The count is the number of distinct digests plus round(X), X the noise of a known law. At confidence 1 - α it is off by at
most q + 1/2, q the two-sided α-quantile of X: rounding moves it by no more than a half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from veilset.core.estimates.bounded_interval import check_confidence
from veilset.core.estimates.results import SizeEstimate
from veilset.core.privacy.noise_laws import CountMechanism, two_sided_quantile
from veilset.core.release.header import ReleaseHeader
from veilset.errors import InvalidInput


def size_from_count(header: ReleaseHeader, confidence: float = 0.95) -> SizeEstimate:
    """Estimate from the count that the release carries, cut at 0. Raises InvalidInput if none was bought."""
    count = header.count
    if count is None:
        raise InvalidInput("count", "count is not in this release; publish with --count-epsilon to include one")
    quantile = two_sided_quantile(CountMechanism(count.mechanism), check_confidence(confidence))
    reach = count.scale * quantile + 0.5
    low, best, high = (max(0.0, count.value + offset) for offset in (-reach, 0.0, reach))
    return SizeEstimate(best, low, high, confidence, "count")


def total_size(added: Sequence[SizeEstimate], removed: Sequence[SizeEstimate]) -> SizeEstimate:
    """The size of a generation: the sum over its releases less the removed elements, whose errors are independent."""
    every = [*added, *removed]
    estimate = max(0.0, sum(part.estimate for part in added) - sum(part.estimate for part in removed))
    below = math.hypot(*(part.estimate - part.low for part in added), *(part.high - part.estimate for part in removed))
    above = math.hypot(*(part.high - part.estimate for part in added), *(part.estimate - part.low for part in removed))
    low = 0.0 if math.isinf(below) else max(0.0, estimate - below)
    return SizeEstimate(estimate, low, estimate + above, every[0].confidence, every[0].source)
