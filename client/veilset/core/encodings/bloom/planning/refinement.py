"""From ranked estimates to plans: the front-runners are calibrated exactly, and the best one's m is adjusted.

An exact calibration costs about 1 ms at W_max = 16 and 100 ms at 256, so the work is rationed by W_max rather than by a
clock, which the core has not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilset.core.encodings.bloom.occupancy import maximum_changed_bits
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.bloom.planning.search import Good, Setting
from veilset.core.encodings.planning import Plan, PlanRequest, evaluate
from veilset.core.params import MIN_BITS
from veilset.errors import PoorUtility

_EFFORT = 80.0
_ESTIMATE_ERROR = 0.01  # relative; settings ranked further below the best exact one are not tried
_STEPS = (2.0**-7, 2.0**-9, 2.0**-11, 2.0**-13, 2.0**-15)


def bits_of(plan: Plan) -> int:
    """Length of the vector."""
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
            if candidate is not None and self.merit(candidate) > merit:
                best, merit = candidate, self.merit(candidate)
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

    def merit(self, candidate: Plan) -> float:
        """The objective's merit of a plan."""
        return float(self._request.merit(candidate.true_positive_rate, candidate.false_positive_rate))

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
                    if candidate is not None and self.merit(candidate) > merit:
                        best, merit, moved = candidate, self.merit(candidate), True
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
        return bool(good(np.array([self.merit(candidate)]), np.array([candidate.advantage]))[0])
