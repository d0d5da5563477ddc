"""Overlap of a list with a linear release: the interval holds the truth as often as it says, at both ends of the range too."""

from __future__ import annotations

import numpy as np
import pytest

from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import Adjacency, PrivacyParameters

LISTED, DRAWS, CONFIDENCE = 10_000, 1000, 0.95
LEAST = 0.909
"""Six standard deviations below 95% of 1,000 draws."""


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("common", [0, 30, 4000, 9990, 10_000])
def test_intervals_hold_the_truth_as_often_as_they_say(common: int, epsilon: float) -> None:
    """Answers drawn from the law that the rates of a million elements are held against."""
    planes = {1.0: 2, 3.0: 4, 8.0: 11}[epsilon]
    privacy = PrivacyParameters(epsilon, 0.0, Adjacency.ADD_REMOVE)
    parameters = LinearParameters.calibrate(privacy, {"columns": 1000, "planes": planes})
    law, random = parameters.expected_law(100), np.random.default_rng()
    yes = random.binomial(common, law.members[1], DRAWS) + random.binomial(LISTED - common, law.others[1], DRAWS)
    estimates = {int(t): parameters.overlap(law, np.array([LISTED - t, t]), CONFIDENCE) for t in set(yes.tolist())}
    held = np.mean([estimates[int(t)].low <= common <= estimates[int(t)].high for t in yes])
    assert held >= LEAST
    assert abs(np.mean([estimates[int(t)].unbiased for t in yes]) - common) < 6 * np.std(yes) / np.sqrt(DRAWS) / (
        law.members[1] - law.others[1]
    )
