"""The planner: which m and k make the most of a promise (ε, δ), and what can be expected of them.

Settings are ranked by estimate (`core.encodings.bloom.search`); the front-runners are calibrated exactly, and the best one's m
is adjusted. An exact calibration costs about 1 ms at W_max = 16 and 100 ms at 256, so the work is rationed by W_max: the core
has no clock. A request that no setting meets is refused with what is possible and the nearest settings that would do: a longer
vector at the same ε, and a larger ε within the same size limit, both calibrated exactly before they are named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.occupancy import maximum_changed_bits
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.bloom.search import Floats, Good, Search, Setting, plannable_hashes
from veilset.core.encodings.planning import LargestAdvantage, Plan, PlanRequest, SmallestVector, evaluate
from veilset.core.params import MAX_BITS, MAX_EPSILON, MIN_BITS
from veilset.errors import PoorUtility

_DEFAULT_SLACK = 0.01

_EFFORT = 80.0
_ESTIMATE_ERROR = 0.01  # relative; settings ranked further below the best exact one are not tried
_STEPS = (2.0**-7, 2.0**-9, 2.0**-11, 2.0**-13, 2.0**-15)
_LONGEST_SUGGESTION = 1024  # bits per element
_EPSILON_STEPS = 6
_COARSE_GRID = 32
_COARSE_HASHES = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32)
_GRID = 64


def plan(request: PlanRequest) -> Plan:
    """The best setting for the request; without a size limit the shortest that comes within 1% of the best.

    Raises PoorUtility if no setting within the size limit reaches the objective's own limit and the efficiency that is
    asked; the message and details say what is possible and name the nearest settings that would do. Raises InvalidInput
    where elements_per_user is too large for the calibration.
    """
    if not plannable_hashes(request.privacy):
        calibrate(MIN_BITS, 1, request.privacy)  # raises, naming the way out
    search, refinement = Search(request), Refinement(request)
    if isinstance(request.objective, SmallestVector):
        good = _good(request)
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
    good = _good(request, merit - _DEFAULT_SLACK * abs(merit))
    return Refinement(request).smallest(search.smallest(good), good) or chosen


def _good(request: PlanRequest, least: float = -np.finfo(np.float64).max) -> Good:
    """Whether settings keep the objective's limit, and have the efficiency that is asked and ``least`` merit."""

    def good(merits: Floats, advantages: Floats) -> NDArray[np.bool_]:
        return (merits >= least) & (advantages >= request.needed_advantage)

    return good


def bits_of(plan: Plan) -> int:
    """The length of a plan's vector in bits."""
    return plan.parameters.dimensions()["bits"]


class Refinement:
    """The exact half of one search. Its effort is used up by every calibration, the first of each call apart."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._effort = _EFFORT

    def best(self, ranked: Sequence[Setting]) -> tuple[Plan, float] | None:
        """The plan of the largest merit among the front-runners, and its merit; None if no setting is feasible."""
        best: Plan | None = None
        merit = -np.inf
        for setting in ranked:
            if best is not None and (setting.merit < merit - _ESTIMATE_ERROR * abs(merit) or self._effort <= 0.0):
                break
            for bits in (setting.bits, *self._beside(setting.bits)):
                candidate = self._price(setting.hashes, bits)
                if candidate is not None:
                    break  # else the estimate was a little off, and the objective's limit is reached beside it
            if candidate is not None and self._request.merit_of(candidate) > merit:
                best, merit = candidate, self._request.merit_of(candidate)
        return None if best is None else self._climb(best, merit)

    def smallest(self, ranked: Sequence[Setting], good: Good) -> Plan | None:
        """The plan of the fewest bits that is good, among settings ranked by bits; None if there is none."""
        found: Plan | None = None
        for setting in ranked:
            if found is not None and (setting.bits >= bits_of(found) or self._effort <= 0.0):
                break
            for growth in (0.0, *reversed(_STEPS)):
                bits = min(setting.bits + int(setting.bits * growth + (growth > 0.0)), self._request.limit_bits)
                candidate = self._price(setting.hashes, bits)
                if candidate is not None and self._is_good(candidate, good):
                    if found is None or bits_of(candidate) < bits_of(found):
                        found = candidate
                    break
        return None if found is None else self._shorten(found, good)

    def _beside(self, bits: int) -> list[int]:
        step = max(1, bits >> 10)
        return [near for near in (bits - step, bits + step) if MIN_BITS <= near <= self._request.limit_bits]

    def _price(self, hashes: int, bits: int) -> Plan | None:
        request = self._request
        privacy = request.privacy
        most = maximum_changed_bits(hashes, privacy.adjacency, privacy.elements_per_user)
        self._effort -= 1.0 + (most / 48.0) ** 2.5
        try:
            return evaluate(BloomParameters.calibrate(privacy, {"bits": bits, "hashes": hashes}), request)
        except PoorUtility:
            return None  # the objective's limit cannot be reached here

    def _climb(self, best: Plan, merit: float) -> tuple[Plan, float]:
        """Move m by ever smaller steps while that helps: the estimate may miss the tip of a tooth by k²/m or so."""
        for share in _STEPS:
            step = max(1, int(bits_of(best) * share))
            moved = True
            while moved and self._effort > 0.0:
                moved = False
                for bits in (bits_of(best) + step, bits_of(best) - step):
                    if not MIN_BITS <= bits <= self._request.limit_bits:
                        continue
                    candidate = self._price(best.parameters.dimensions()["hashes"], bits)
                    if candidate is not None and self._request.merit_of(candidate) > merit:
                        best, merit, moved = candidate, self._request.merit_of(candidate), True
                        break
        return best, merit

    def _shorten(self, found: Plan, good: Good) -> Plan:
        for share in _STEPS:
            step = max(1, int(bits_of(found) * share))
            while self._effort > 0.0 and bits_of(found) - step >= MIN_BITS:
                candidate = self._price(found.parameters.dimensions()["hashes"], bits_of(found) - step)
                if candidate is None or not self._is_good(candidate, good):
                    break
                found = candidate
        return found

    def _is_good(self, candidate: Plan, good: Good) -> bool:
        return bool(good(np.array([self._request.merit_of(candidate)]), np.array([candidate.advantage]))[0])


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
        f"{request.privacy.epsilon:g} reaches {_wish(request)}; {have}. The nearest that do: {nearest}",
        **details,
    )


def _wish(request: PlanRequest) -> str:
    floor = f"an efficiency of at least {_needed_efficiency(request):g}"
    own = str(request.objective)
    return floor if isinstance(request.objective, LargestAdvantage) or own == floor else f"{own} with {floor}"


def _needed_efficiency(request: PlanRequest) -> float:
    return request.needed_advantage / request.advantage_limit


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
