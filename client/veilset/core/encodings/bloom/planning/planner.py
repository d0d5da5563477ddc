"""The planner: which m and k make the most of a promise (ε, δ), and what can be expected of them.

Settings are ranked by estimate (`core.encodings.bloom.planning.search`); whatever is returned was calibrated exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.planning.estimates import plannable_hashes
from veilset.core.encodings.bloom.planning.refinement import Refinement
from veilset.core.encodings.bloom.planning.refusals import refusal
from veilset.core.encodings.bloom.planning.search import Floats, Good, Search
from veilset.core.encodings.planning import Plan, PlanRequest, SmallestVector
from veilset.core.params import MIN_BITS

_DEFAULT_SLACK = 0.01


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


def _at_least(merit: float, advantage: float) -> Good:
    def good(merits: Floats, advantages: Floats) -> NDArray[np.bool_]:
        return (merits >= merit) & (advantages >= advantage)

    return good
