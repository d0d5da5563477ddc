"""The rates of a generation, against a table that was computed and simulated elsewhere, and against a simulation here."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veilset.core.encodings import ENCODINGS, check_increments, plan_all, recommended
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.generation import mixture_scores
from veilset.core.encodings.interface import Parameters, pure
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest, evaluate, for_increment, rates_after
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.errors import InvalidInput, PoorUtility

TABLE = Path(__file__).parents[1] / "data" / "generations_reference.csv"
ROWS = [
    row for row in csv.DictReader(TABLE.read_text().splitlines()) if row["encoding"] == "linear" and not row["fpr_cap"]
]


def _linear_rates(epsilon: float, planes: int) -> tuple[float, float]:
    q = 2.0**planes
    drop = max(math.exp(-epsilon), (q - math.exp(epsilon)) / (q - 1.0))
    return 1.0 - drop * (1.0 - 1.0 / q), 1.0 / q


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['eps']}-{row['T']}")
def test_best_planes_and_rates_agree_with_the_reference_table(row: dict[str, str]) -> None:
    increments, epsilon = int(row["T"]), float(row["eps"])
    request = PlanRequest(
        10**6, PrivacyParameters(epsilon, 0.0, Adjacency.ADD_REMOVE), increments=increments, min_efficiency=0.0
    )
    best = max(range(1, 33), key=lambda planes: float(request.merit(*_linear_rates(epsilon, planes))))
    assert LinearParameters.plan(request).parameters.fields()["planes"] == best
    assert row["base"] == f"q=2^{best}"
    detected, mistaken = rates_after(*_linear_rates(epsilon, best), increments)
    assert float(detected) == pytest.approx(float(row["tpr_T"]), abs=1e-8)
    assert float(mistaken) == pytest.approx(float(row["fpr_T"]), abs=1e-8)
    _, early = rates_after(*_linear_rates(epsilon, best), 1)
    assert float(early) == pytest.approx(float(row["fpr_1"]), abs=1e-8)


def test_no_increment_leaves_the_rates_of_one_release() -> None:
    detected, mistaken = rates_after(0.9, 0.2, 0)
    assert [float(detected), float(mistaken)] == pytest.approx([0.9, 0.2])


def test_mixture_score_is_the_likelihood_ratio_of_a_member_of_any_release() -> None:
    members, others = np.array([[0.2, 0.8], [0.4, 0.6]]), np.array([[0.7, 0.3], [0.9, 0.1]])
    capacities = [300, 100]
    for first in (0, 1):
        for second in (0, 1):
            scores = [np.log(members[0, first] / others[0, first]), np.log(members[1, second] / others[1, second])]
            member = 0.75 * members[0, first] * others[1, second] + 0.25 * others[0, first] * members[1, second]
            expected = math.log(member / (others[0, first] * others[1, second]))
            assert float(mixture_scores(scores, capacities)) == pytest.approx(expected)


@pytest.mark.parametrize("increments", [-1, 1001, 1.5])
def test_number_of_increments_out_of_range_is_refused(increments: int) -> None:
    with pytest.raises(InvalidInput, match="increments"):
        PlanRequest(1000, PrivacyParameters(3.0, 0.0, Adjacency.ADD_REMOVE), increments=increments, min_efficiency=0.0)


def test_a_family_whose_increments_keep_no_promise_is_not_recommended() -> None:
    """Though without increments its plan stands."""
    request = PlanRequest(10**5, PrivacyParameters(8.0, 0.0, Adjacency.REPLACE_ONE), increments=3)
    found = plan_all(request)
    refused = found["bloom"]
    assert isinstance(refused, PoorUtility)
    assert "replace-one" in str(refused)
    assert recommended(found, request) is found["linear"]
    check_increments(BloomParameters.plan(replace(request, increments=0)))
    with pytest.raises(InvalidInput, match="replace-one"):
        check_increments(BloomParameters.plan(request))


def test_increments_of_a_promise_with_delta_are_refused() -> None:
    privacy = PrivacyParameters(8.0, 1e-6, Adjacency.ADD_REMOVE, Calibration.W_QUANTILE)
    parameters = BloomParameters.calibrate(privacy, {"bits": 40, "hashes": 30})
    plan = evaluate(parameters, PlanRequest(10, privacy, increments=3))
    assert plan.privacy.delta > 0.0
    with pytest.raises(InvalidInput, match="delta 0"):
        check_increments(plan)


@pytest.mark.parametrize("size", [1, 1000, 3_000_000])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])
@pytest.mark.parametrize(
    ("family", "adjacency"),
    [(family, adjacency) for family in ENCODINGS.values() for adjacency in sorted(family.GENERATIONS)],
)
def test_increments_keep_the_promise_and_noise_of_their_base(
    family: type[Parameters], adjacency: Adjacency, epsilon: float, size: int
) -> None:
    """Whatever they are made for: only the length follows it."""
    privacy = PrivacyParameters(epsilon, 0.0, adjacency, Calibration.W_QUANTILE)
    plan = family.plan(PlanRequest(100_000, privacy, increments=30, min_efficiency=0.0))
    made = for_increment(plan.parameters, plan.privacy, made_for=plan.capacity, size=size)
    charged = made.charged(pure(plan.privacy))
    assert charged.epsilon == epsilon
    assert charged.delta == 0.0
    length = {"bits", "columns"}
    base, increment = plan.parameters.fields(), made.fields()
    assert {name: base[name] for name in base.keys() - length} == {
        name: increment[name] for name in base.keys() - length
    }
    assert (made.vector_bytes < plan.bytes) is (size < 100_000)
