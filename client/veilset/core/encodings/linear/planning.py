"""Which number of planes makes the most of a promise; everything else follows from it.

q = 2^planes sets both error rates: FP = 1/q, and d by what the promise asks for with this q. Around q = e^ε + 1 both are least
together; more planes buy fewer false positives for more elements dropped. So a search is a look at 32 plans.
"""

from __future__ import annotations

from dataclasses import replace

from veilset.core.encodings.linear.calibration import COIN_SIDES, drop_threshold
from veilset.core.encodings.linear.parameters import MAX_PLANES, LinearParameters, columns_for, longest
from veilset.core.encodings.linear.rows import BAND
from veilset.core.encodings.planning import Plan, PlanRequest, SmallestVector, evaluate
from veilset.core.params import MAX_EPSILON
from veilset.errors import PoorUtility


def plan(request: PlanRequest) -> Plan:
    """The best plan within the size limit. Raises PoorUtility with what would do."""
    every = _plans(request)
    fitting = [found for found in every if 8 * found.bytes <= request.limit_bits]
    good = [found for found in fitting if found.advantage >= request.needed_advantage]
    if not good:
        raise _refusal(request, every)
    if isinstance(request.objective, SmallestVector):
        return min(good, key=lambda found: found.bytes)
    return max(good, key=lambda found: (_merit(request, found), -found.bytes))


def _plans(request: PlanRequest) -> list[Plan]:
    """Every number of planes that keeps some elements and the objective's limit to an error rate, at any length."""
    found = []
    privacy = request.privacy
    for planes in range(1, MAX_PLANES + 1):
        threshold = drop_threshold(privacy.epsilon, privacy.adjacency, planes, privacy.elements_per_user)
        if threshold >= COIN_SIDES:
            break
        columns = columns_for(LinearParameters.capacity_for(request.size), threshold / COIN_SIDES, BAND)
        if columns > longest(planes):
            break
        try:
            found.append(evaluate(LinearParameters(columns, BAND, planes, threshold), request))
        except PoorUtility:
            continue
    return found


def _merit(request: PlanRequest, found: Plan) -> float:
    return float(request.merit(found.true_positive_rate, found.false_positive_rate))


def _refusal(request: PlanRequest, every: list[Plan]) -> PoorUtility:
    """Why there is no plan, and the least that would do: a longer vector, or a larger ε."""
    good = [found for found in every if found.advantage >= request.needed_advantage]
    details: dict[str, object] = {"encoding": LinearParameters.encoding}
    if good:
        shortest = min(good, key=lambda found: found.bytes)
        details["needed_bytes"] = shortest.bytes
        way = f"it takes {shortest.bytes} bytes instead of {request.limit_bits // 8}"
    elif (epsilon := _needed_epsilon(request)) is not None:
        details["needed_epsilon"] = f"{epsilon:.4g}"
        way = f"it takes epsilon {epsilon:.4g} instead of {request.privacy.epsilon:g}"
    else:
        way = "no epsilon would do"
    return PoorUtility(f"no linear release for {request.size} elements reaches {request.objective}: {way}", **details)


def _needed_epsilon(request: PlanRequest) -> float | None:
    """The least ε, to 1%, at which a vector of any length would do; None up to the largest ε."""
    epsilon = request.privacy.epsilon
    while (epsilon := epsilon * 1.01) <= MAX_EPSILON:
        stronger = replace(request, privacy=replace(request.privacy, epsilon=epsilon))
        if any(found.advantage >= stronger.needed_advantage for found in _plans(stronger)):
            return epsilon
    return None
