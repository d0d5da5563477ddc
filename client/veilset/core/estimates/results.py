"""What readers get: overlaps, sizes and comparisons with intervals, and the cheapest decision about one element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilset._display import Displayed, draw
from veilset.core.estimates.intervals import BoundedTest, Estimate
from veilset.errors import must_be

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Displayed, Estimate):
    """Elements of an own list that are in a set, with the interval [low, high] at ``confidence``.

    own_size: distinct elements of the list; estimate and interval lie in [0, own_size], and the interval holds a true
    overlap of 0 or of the whole list as often as any other. It reaches to the whole numbers next to the estimate.
    unbiased: the estimate before it was moved into that range; average this one over several lists.
    """

    own_size: int
    unbiased: float

    @classmethod
    def of(cls, test: BoundedTest, own_size: int, unbiased: float) -> Overlap:
        """From the test of the overlap, and the estimate before it is moved into [0, own_size]."""
        found = test.estimate(unbiased)
        low, high = min(found.low, math.floor(found.estimate)), max(found.high, math.ceil(found.estimate))
        return cls(found.estimate, low, high, found.confidence, own_size, unbiased)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw estimate and interval on the length of the list, on ``ax`` or a new figure; returns the Axes.

        Raises FailedPrecondition if matplotlib (the extra ``plot``) is missing.
        """
        return draw(self, ax)


@dataclass(frozen=True, slots=True, repr=False)
class SizeEstimate(Displayed):
    """Distinct elements, with the interval [low, high] at ``confidence``; ``source`` is "bits" or "count".

    high is infinite where the vector may be full, and a full vector does not show how full.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Displayed):
    """Distinct elements of two sets, of both together and common to both, and the Jaccard index, with intervals.

    An upper end but that of the Jaccard index is infinite where vectors may be full, or too full to show it.
    """

    left: Estimate
    right: Estimate
    union: Estimate
    intersection: Estimate
    jaccard: Estimate

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both sets, their union and what they have in common, with intervals, on ``ax`` or a new figure; returns the Axes.

        Raises FailedPrecondition if matplotlib (the extra ``plot``) is missing.
        """
        return draw(self, ax)


@dataclass(frozen=True, slots=True, repr=False)
class Check(Displayed):
    """The posterior of one element, and what to do about it.

    member: whether to treat it as a member. posterior: probability that it is one, given prior and answer. expected_cost: of that
    decision. cutoff: the posterior above which an element is treated as a member. foregone: whether prior and costs alone
    decide, so that no answer of this release could change the decision.
    """

    member: bool
    posterior: float
    expected_cost: float
    cutoff: float
    foregone: bool


def decide(
    posterior: float, possible: tuple[float, float], cost_false_positive: float, cost_false_negative: float
) -> Check:
    """Choose between "member" (wrong with 1 - posterior) and "not a member" (wrong with posterior) by expected cost.

    posterior: in [0, 1]. possible: the smallest and largest posterior that the release can give at this prior. The
    costs of a non-member treated as a member and of a member treated as none: finite, at least 0, not both 0. Member iff
    posterior·cost_false_negative > (1 - posterior)·cost_false_positive; a tie goes to "not a member". (The Bayes
    decision for two actions: J. Berger, "Statistical Decision Theory and Bayesian Analysis", 1985, section 4.4.)
    Raises InvalidInput.
    """
    for field, cost in (("cost_false_positive", cost_false_positive), ("cost_false_negative", cost_false_negative)):
        if not 0.0 <= cost < math.inf:
            raise must_be(field, "a finite number, at least 0", cost)
    largest = max(cost_false_positive, cost_false_negative)
    if not largest > 0.0:
        raise must_be("cost_false_negative", "above 0 where cost_false_positive is 0", cost_false_negative)
    needless, missed = cost_false_positive / largest, cost_false_negative / largest

    def treats_as_member(probability: float) -> bool:
        return probability * missed > (1.0 - probability) * needless

    member = treats_as_member(posterior)
    foregone = treats_as_member(possible[0]) == treats_as_member(possible[1])
    cost = (1.0 - posterior) * cost_false_positive if member else posterior * cost_false_negative
    return Check(member, posterior, cost, needless / (needless + missed), foregone)
