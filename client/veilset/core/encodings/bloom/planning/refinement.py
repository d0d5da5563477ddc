"""From ranked estimates to plans: the front-runners are calibrated exactly, and the best one's m is adjusted.

An exact calibration costs about 1 ms at W_max = 16 and 100 ms at 256, so the work is rationed by W_max rather than by a
clock, which the core has not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilset.core.encodings.bloom.occupancy import maximum_changed_bits
from veilset.core.encodings.bloom.planning.pricing import Plan, evaluate
from veilset.core.encodings.bloom.planning.request import PlanRequest
from veilset.core.encodings.bloom.planning.search import Good, Setting
from veilset.core.params import MIN_BITS
from veilset.errors import PoorUtility

_EFFORT = 80.0
_ESTIMATE_ERROR = 0.01  # relative; settings ranked further below the best exact one are not tried
_STEPS = (2.0**-7, 2.0**-9, 2.0**-11, 2.0**-13, 2.0**-15)


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
            if found is not None and (setting.bits >= found.bits or self._effort <= 0.0):
                break
            for growth in (0.0, *reversed(_STEPS)):
                bits = min(setting.bits + int(setting.bits * growth + (growth > 0.0)), self._request.limit_bits)
                candidate = self._price(setting.hashes, bits)
                if candidate is not None and self._is_good(candidate, good):
                    if found is None or candidate.bits < found.bits:
                        found = candidate
                    break
        return None if found is None else self._shorten(found, good)

    def _beside(self, bits: int) -> list[int]:
        step = max(1, bits >> 10)
        return [near for near in (bits - step, bits + step) if MIN_BITS <= near <= self._request.limit_bits]

    def merit(self, candidate: Plan) -> float:
        """The objective's merit of a plan."""
        return float(self._request.objective.merit(candidate.true_positive_rate, candidate.false_positive_rate))

    def _price(self, hashes: int, bits: int) -> Plan | None:
        request = self._request
        privacy = request.privacy
        most = maximum_changed_bits(hashes, privacy.adjacency, privacy.elements_per_user)
        self._effort -= 1.0 + (most / 48.0) ** 2.5
        limits = request.decoder_limits
        try:
            return evaluate(
                request.size,
                privacy,
                bits,
                hashes,
                rule=request.rule,
                max_false_positive_rate=limits.max_false_positive_rate,
                min_true_positive_rate=limits.min_true_positive_rate,
            )
        except PoorUtility:
            return None  # the objective's limit cannot be reached here

    def _climb(self, best: Plan, merit: float) -> tuple[Plan, float]:
        """Move m by ever smaller steps while that helps: the estimate may miss the tip of a tooth by k²/m or so."""
        for share in _STEPS:
            step = max(1, int(best.bits * share))
            moved = True
            while moved and self._effort > 0.0:
                moved = False
                for bits in (best.bits + step, best.bits - step):
                    if not MIN_BITS <= bits <= self._request.limit_bits:
                        continue
                    candidate = self._price(best.hashes, bits)
                    if candidate is not None and self.merit(candidate) > merit:
                        best, merit, moved = candidate, self.merit(candidate), True
                        break
        return best, merit

    def _shorten(self, found: Plan, good: Good) -> Plan:
        for share in _STEPS:
            step = max(1, int(found.bits * share))
            while self._effort > 0.0 and found.bits - step >= MIN_BITS:
                candidate = self._price(found.hashes, found.bits - step)
                if candidate is None or not self._is_good(candidate, good):
                    break
                found = candidate
        return found

    def _is_good(self, candidate: Plan, good: Good) -> bool:
        return bool(good(np.array([self.merit(candidate)]), np.array([candidate.advantage]))[0])
