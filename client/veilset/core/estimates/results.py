"""What is estimated from releases, with intervals: how many of a list are in a set, its size, and two sets compared."""

from __future__ import annotations

from dataclasses import dataclass

from veilset.core.estimates.bounded_interval import Estimate


@dataclass(frozen=True, slots=True)
class Overlap(Estimate):
    """Elements of an own list that are in a set, with the interval [low, high] at ``confidence``.

    own_size: distinct elements of the list; estimate and interval lie in [0, own_size], and the interval holds a true
    overlap of 0 or of the whole list as often as any other. It reaches to the whole numbers next to the estimate.
    unbiased: the estimate before it was moved into that range; average this one over several lists.
    """

    own_size: int
    unbiased: float


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Distinct elements, with the interval [low, high] at ``confidence``; ``source`` is "bits" or "count".

    high is infinite where the vector may be full, and a full vector does not show how full.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Distinct elements of two sets, of both together and common to both, and the Jaccard index, with intervals.

    An upper end but that of the Jaccard index is infinite where vectors may be full, or too full to show it.
    """

    left: Estimate
    right: Estimate
    union: Estimate
    intersection: Estimate
    jaccard: Estimate
