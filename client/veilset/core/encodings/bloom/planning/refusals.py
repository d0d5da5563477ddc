"""The refusal of a request that no setting meets: what is possible, and the nearest settings that would do.

Two ways out are looked for, one at a time: a longer vector at the same ε, and a larger ε within the same size limit. Both
are calibrated exactly before they are named.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.planning.refinement import Refinement
from veilset.core.encodings.bloom.planning.search import Floats, Good, Search
from veilset.core.encodings.planning import LargestAdvantage, Plan, PlanRequest
from veilset.core.params import MAX_BITS, MAX_EPSILON
from veilset.errors import PoorUtility

_LONGEST_SUGGESTION = 1024  # bits per element
_EPSILON_STEPS = 6
_COARSE_GRID = 32
_COARSE_HASHES = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32)
_GRID = 64


def refusal(request: PlanRequest, best: Plan | None) -> PoorUtility:
    """The error to raise for a request whose ``best`` plan is not good enough, or None where its objective's limit is
    out of reach. Details hold the numbers: best_…, needed_bytes, needed_epsilon."""
    present = best or _most_useful(request)
    longer, larger = _longer_vector(request), _larger_epsilon(request)
    details: dict[str, object] = {"needed_efficiency": f"{_needed_efficiency(request):.6g}"}
    if present is not None:
        details |= {f"best_{name}": value for name, value in present.parameters.dimensions().items()}
        details |= {"best_efficiency": f"{present.efficiency:.6g}", "best_advantage": f"{present.advantage:.6g}"}
    ways = []
    if longer is not None:
        details["needed_bytes"] = longer.bytes
        ways.append(f"max_bytes {longer.bytes} at epsilon {request.privacy.epsilon:g} ({longer})")
    if larger is not None:
        epsilon, improved = larger
        details["needed_epsilon"] = f"{epsilon:.6g}"
        ways.append(f"epsilon {epsilon:g} within the same size limit ({improved})")
    nearest = " or ".join(ways) if ways else f"none with up to {_LONGEST_SUGGESTION} bits per element or epsilon 64"
    have = "nothing is possible" if present is None else f"the best is {present}{_without_limit(request, best)}"
    return PoorUtility(
        f"no setting of at most {request.limit_bits} bits for {request.size} elements at epsilon "
        f"{request.privacy.epsilon:g} reaches {_wish(request)}; {have}. Nearest that do: {nearest}",
        **details,
    )


def _wish(request: PlanRequest) -> str:
    floor = f"an efficiency of at least {_needed_efficiency(request):g}"
    own = str(request.objective)
    return floor if isinstance(request.objective, LargestAdvantage) or own == floor else f"{own} with {floor}"


def _needed_efficiency(request: PlanRequest) -> float:
    return request.needed_advantage / request.advantage_limit


def _good(request: PlanRequest) -> Good:
    def good(merits: Floats, advantages: Floats) -> NDArray[np.bool_]:
        return (merits > -np.inf) & (advantages >= request.needed_advantage)

    return good


def _without_limit(request: PlanRequest, best: Plan | None) -> str:
    """What giving up the objective's own limit would bring, where that is what stands in the way."""
    if best is None or not request.objective.limits().given:
        return ""
    free = _most_useful(request)
    return f"; without that limit {free}" if free is not None else ""


def _most_useful(request: PlanRequest) -> Plan | None:
    wished = replace(request, objective=LargestAdvantage())
    found = Refinement(wished).best(Search(wished, _GRID).best())
    return None if found is None else found[0]


def _longer_vector(request: PlanRequest) -> Plan | None:
    most = min(MAX_BITS, _LONGEST_SUGGESTION * request.size)
    if most <= request.limit_bits:
        return None
    wished = replace(request, max_bytes=max(1, most // 8), bits_per_element=None)
    return Refinement(wished).smallest(Search(wished, _GRID).smallest(_good(wished)), _good(wished))


def _larger_epsilon(request: PlanRequest) -> tuple[float, Plan] | None:
    """The smallest ε up to 64, to three digits or so, at which some setting is good enough."""

    def at(epsilon: float) -> PlanRequest:
        return replace(request, privacy=replace(request.privacy, epsilon=epsilon))

    def is_enough(wished: PlanRequest) -> bool:
        return bool(Search(wished, _COARSE_GRID, _COARSE_HASHES).smallest(_good(wished)))

    low, high = request.privacy.epsilon, MAX_EPSILON
    if low >= high or not is_enough(at(high)):
        return None
    for _ in range(_EPSILON_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(at(middle)) else (middle, high)
    for growth in (1.0, 1.02, 1.1):
        wished = at(min(MAX_EPSILON, _rounded_up(high * growth)))
        plan = Refinement(wished).smallest(Search(wished, _GRID).smallest(_good(wished)), _good(wished))
        if plan is not None:
            return wished.privacy.epsilon, plan
    return None


def _rounded_up(value: float) -> float:
    """``value`` to three significant digits, not below it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit) * unit:.3g}")
