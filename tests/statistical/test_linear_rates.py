"""A million elements through plan, encode and read: both error rates and the size are what was said beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilset.core.elements.hashing import sorted_distinct
from veilset.core.encodings.interface import MemoryVector
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, PrivacyParameters
from veilset_server.state.entropy import AesKeyStream

ELEMENTS = 10**6
LIMIT = 6.0  # standard deviations; exceeded by chance twice in 10^9, 16 times over below 10^-7
USUAL = 3.2905  # of an interval of 99.9%
BITS = {1.0: 1.2, 2.0: 2.7, 3.0: 4.0, 5.0: 7.3, 6.0: 8.4, 8.0: 11.6}
"""Bits an element at this epsilon without headroom, to one decimal; the capacity here is 1.25 times the elements."""


@pytest.mark.parametrize(
    ("epsilon", "relation"),
    [
        *((epsilon, Adjacency.ADD_REMOVE) for epsilon in BITS),
        (3.0, Adjacency.REPLACE_ONE),
        (8.0, Adjacency.REPLACE_ONE),
    ],
)
def test_rates_of_a_million_elements_are_those_predicted(
    epsilon: float, relation: Adjacency, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = LinearParameters.plan(PlanRequest(ELEMENTS, PrivacyParameters(epsilon, 0.0, relation)))
    parameters = plan.parameters
    random = np.random.default_rng()
    digests = sorted_distinct(random.integers(0, 1 << 64, ELEMENTS, dtype=np.uint64))
    vector = MemoryVector(np.frombuffer(b"".join(parameters.encode([digests], AesKeyStream())), np.uint8))
    others = random.integers(0, 1 << 64, ELEMENTS, dtype=np.uint64)  # one is a member's with probability 10^-7
    for name, asked, wrong, expected in (
        ("FN", digests, 0, 1.0 - plan.true_positive_rate),
        ("FP", others, 1, plan.false_positive_rate),
    ):
        rate = float(np.mean(parameters.read(vector, asked) == wrong))
        z = (rate - expected) / math.sqrt(expected * (1.0 - expected) / len(asked))
        with capsys.disabled():
            inside = "inside" if abs(z) <= USUAL else "OUTSIDE"
            print(
                f"\n{relation} epsilon {epsilon:g}: {name} {rate:.5f}, predicted {expected:.5f}, {inside} 99.9%", end=""
            )
        assert abs(z) <= LIMIT
    if relation is Adjacency.ADD_REMOVE:
        assert 8 * len(vector.array) / ELEMENTS <= 1.25 * (BITS[epsilon] + 0.05)
