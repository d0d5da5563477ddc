"""The planner: which m, k and threshold make the most of a promise (ε, δ), and what can be expected of them.

`plan` searches or refuses, `evaluate` prices what the caller chose, `textbook_setting` is the choice that ignores the
noise, `alternatives` says what more ε or more bits would buy. Settings are ranked by estimate
(`core.encodings.bloom.planning.search`); whatever is returned was calibrated exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.planning.estimates import plannable_hashes
from veilset.core.encodings.bloom.planning.objectives import (
    LargestAdvantage,
    LargestTruePositiveRate,
    Objective,
    SmallestFalsePositiveRate,
    SmallestVector,
)
from veilset.core.encodings.bloom.planning.pricing import Plan, evaluate, rates_by_threshold, textbook_setting
from veilset.core.encodings.bloom.planning.refinement import Refinement
from veilset.core.encodings.bloom.planning.refusals import refusal
from veilset.core.encodings.bloom.planning.request import MINIMUM_EFFICIENCY, PlanRequest
from veilset.core.encodings.bloom.planning.search import Floats, Good, Search
from veilset.core.params import MAX_BITS, MAX_EPSILON, MIN_BITS, FilterParameters
from veilset.errors import PoorUtility

__all__ = [
    "MINIMUM_EFFICIENCY",
    "Alternatives",
    "LargestAdvantage",
    "LargestTruePositiveRate",
    "Objective",
    "Plan",
    "PlanRequest",
    "SmallestFalsePositiveRate",
    "SmallestVector",
    "alternatives",
    "efficiency_curve",
    "evaluate",
    "plan",
    "rates_by_threshold",
    "textbook_setting",
]

_DEFAULT_SLACK = 0.01


def plan(request: PlanRequest) -> Plan:
    """The best setting for the request.

    Raises PoorUtility if no setting within the size limit reaches the objective's own limit and the efficiency that is
    asked; the message and details say what is possible and name the nearest settings that would do. Raises InvalidInput
    where elements_per_user is too large for the calibration. The threshold is that of elements with k distinct positions.
    """
    if not plannable_hashes(request.privacy):
        calibrate(FilterParameters(MIN_BITS, 1), request.privacy)  # raises, naming the way out
    search, refinement = Search(request), Refinement(request)
    if isinstance(request.objective, SmallestVector):
        good = _at_least(-np.inf, request.needed_advantage)
        chosen = refinement.smallest(search.smallest(good), good)
        if chosen is None:
            raise refusal(request, None)
        return chosen
    best = refinement.best(search.best())
    if best is None or best[0].advantage < request.needed_advantage:
        raise refusal(request, best and best[0])
    chosen, merit = best
    if request.is_limited:
        return chosen
    good = _at_least(merit - _DEFAULT_SLACK * abs(merit), request.needed_advantage)
    return Refinement(request).smallest(search.smallest(good), good) or chosen


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What a plan could be with twice of something; None where that is out of range."""

    doubled_epsilon: Plan | None
    doubled_bytes: Plan | None


def alternatives(request: PlanRequest, chosen: Plan) -> Alternatives:
    """What doubling ε within the same size, or doubling the size at the same ε, would buy.

    The size is the request's limit, or ``chosen.bytes`` where it has none. Nothing is refused here for being poor.
    """
    free = replace(request, min_efficiency=0.0, max_bytes=None, bits_per_element=None)
    if isinstance(request.objective, SmallestVector):
        free = replace(free, objective=LargestAdvantage())
    limit = request.limit_bits // 8 if request.is_limited else chosen.bytes
    epsilon = 2.0 * request.privacy.epsilon
    stronger = replace(request.privacy, epsilon=min(epsilon, MAX_EPSILON))
    return Alternatives(
        _or_none(replace(free, privacy=stronger, max_bytes=max(1, limit))) if epsilon <= MAX_EPSILON else None,
        _or_none(replace(free, max_bytes=2 * limit)) if 16 * limit <= MAX_BITS else None,
    )


def efficiency_curve(request: PlanRequest, bits_per_element: Sequence[float]) -> list[tuple[float, Plan]]:
    """The best plan at each size of at least 8 bits, as (bits per element, plan); for drawing."""
    free = replace(request, min_efficiency=0.0, max_bytes=None, objective=LargestAdvantage())
    sizes = [size for size in bits_per_element if MIN_BITS <= size * request.size <= MAX_BITS]
    return [(size, plan(replace(free, bits_per_element=size))) for size in sizes]


def _or_none(request: PlanRequest) -> Plan | None:
    try:
        return plan(request)
    except PoorUtility:
        return None


def _at_least(merit: float, advantage: float) -> Good:
    def good(merits: Floats, advantages: Floats) -> NDArray[np.bool_]:
        return (merits >= merit) & (advantages >= advantage)

    return good
