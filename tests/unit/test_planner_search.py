"""The planner's search: against every setting there is, and within sane bounds for any request."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.shapes import evaluate, own
from veilset.core.encodings import planning
from veilset.core.encodings.bloom import planner
from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.bloom.search import CalibrationEstimate, plannable_hashes
from veilset.core.encodings.planning import (
    LargestAdvantage,
    LargestTruePositiveRate,
    Objective,
    Plan,
    PlanRequest,
    SmallestFalsePositiveRate,
    SmallestVector,
)
from veilset.core.params import MAX_HASHES, Adjacency, Calibration, PrivacyParameters
from veilset.errors import PoorUtility

ADD_REMOVE, REPLACE_ONE = Adjacency
QUANTILE, EXACT, WORST_CASE = Calibration
ADVANTAGE = LargestAdvantage()

# size, bits per element, promise, objective: short vectors, where every length can be tried.
SMALL = [
    pytest.param(*(20, 6.0, PrivacyParameters(1.0, 1e-9, ADD_REMOVE), ADVANTAGE), marks=pytest.mark.audit),
    (20, 6.0, PrivacyParameters(3.0, 1e-2, REPLACE_ONE, QUANTILE, min_size=20), ADVANTAGE),
    pytest.param(
        *(20, 6.0, PrivacyParameters(3.0, 0.1, ADD_REMOVE, QUANTILE, min_size=20), ADVANTAGE), marks=pytest.mark.audit
    ),
    pytest.param(
        *(20, 6.0, PrivacyParameters(8.0, 1e-4, REPLACE_ONE, EXACT, min_size=10), ADVANTAGE), marks=pytest.mark.audit
    ),
    pytest.param(
        *(20, 6.0, PrivacyParameters(20.0, 0.0, ADD_REMOVE, WORST_CASE, elements_per_user=2), ADVANTAGE),
        marks=pytest.mark.audit,
    ),
    (20, 6.0, PrivacyParameters(8.0, 0.1, ADD_REMOVE, QUANTILE, min_size=20), LargestTruePositiveRate(0.1)),
    pytest.param(
        *(20, 6.0, PrivacyParameters(8.0, 1e-2, ADD_REMOVE, EXACT, min_size=20), SmallestFalsePositiveRate(0.9)),
        marks=pytest.mark.audit,
    ),
]

# Long vectors with credit for the size, where the advantage is a sawtooth in m: a grid of lengths is tried.
LARGE = [
    (10**6, 8.0, PrivacyParameters(3.0, 0.1, ADD_REMOVE, QUANTILE, min_size=10**6), LargestTruePositiveRate(0.05)),
    pytest.param(
        *(10**6, 2.0, PrivacyParameters(1.0, 0.1, REPLACE_ONE, QUANTILE, min_size=10**6), ADVANTAGE),
        marks=pytest.mark.audit,
    ),
    pytest.param(
        *(10**6, 4.0, PrivacyParameters(20.0, 1e-2, REPLACE_ONE, EXACT, min_size=10**6), ADVANTAGE),
        marks=pytest.mark.audit,
    ),
    pytest.param(
        *(10**9, 16.0, PrivacyParameters(8.0, 1e-9, REPLACE_ONE, QUANTILE, min_size=10**9), ADVANTAGE),
        marks=pytest.mark.audit,
    ),
]


def merit(objective: Objective, setting: Plan) -> float:
    return float(objective.merit(setting.true_positive_rate, setting.false_positive_rate))


def price(request: PlanRequest, bits: int, hashes: int) -> Plan | None:
    limits = request.objective.limits()
    try:
        return evaluate(
            request.size,
            request.privacy,
            bits,
            hashes,
            max_false_positive_rate=limits.max_false_positive_rate,
            min_true_positive_rate=limits.min_true_positive_rate,
        )
    except PoorUtility:
        return None


def assert_unbeaten(request: PlanRequest, settings_: list[tuple[int, int]]) -> None:
    found = merit(request.objective, plan(request))
    slack = 1e-3 * abs(found)
    for bits, hashes in settings_:
        rival = price(request, bits, hashes)
        if rival is not None:
            assert merit(request.objective, rival) <= found + slack, f"{rival} beats {found}"


@pytest.mark.parametrize(("size", "bits_per_element", "privacy", "objective"), SMALL)
def test_no_short_setting_beats_the_plan(
    size: int, bits_per_element: float, privacy: PrivacyParameters, objective: Objective
) -> None:
    """Every length of the vector with one to six hashes, by more than a thousandth."""
    request = PlanRequest(size, privacy, bits_per_element=bits_per_element, objective=objective, min_efficiency=0.0)
    lengths = range(8, request.limit_bits + 1)
    assert_unbeaten(request, [(bits, hashes) for hashes in range(1, 7) for bits in lengths])


@pytest.mark.parametrize(("size", "bits_per_element", "privacy", "objective"), LARGE)
def test_no_long_setting_beats_the_plan(
    size: int, bits_per_element: float, privacy: PrivacyParameters, objective: Objective
) -> None:
    """A fine grid of lengths for many numbers of hashes."""
    request = PlanRequest(size, privacy, bits_per_element=bits_per_element, objective=objective, min_efficiency=0.0)
    rivals = [
        (int(bits), hashes)
        for hashes in (1, 2, 3, 4, 5, 7, 10, 14)
        for bits in np.geomspace(size * hashes / 8, request.limit_bits, 60)
        if bits <= request.limit_bits
    ]
    assert_unbeaten(request, rivals)


@pytest.mark.parametrize(
    "privacy",
    [
        PrivacyParameters(3.0, 1e-9, ADD_REMOVE),
        PrivacyParameters(8.0, 0.1, REPLACE_ONE, QUANTILE, min_size=30),
        PrivacyParameters(8.0, 1e-2, ADD_REMOVE, EXACT, min_size=30),
    ],
)
def test_no_shorter_vector_reaches_the_efficiency(privacy: PrivacyParameters) -> None:
    """Every shorter length with one to six hashes misses it."""
    chosen = plan(PlanRequest(30, privacy, objective=SmallestVector(0.6)))
    assert chosen.efficiency >= 0.6
    for hashes in range(1, 7):
        for bits in range(8, own(chosen).bits):
            assert evaluate(30, privacy, bits, hashes).efficiency < 0.6, (bits, hashes, chosen)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    size = int(10 ** draw(st.floats(0.0, 12.0)))
    calibration = draw(st.sampled_from(Calibration))
    privacy = PrivacyParameters(
        10 ** draw(st.floats(-2.0, 1.8)),
        draw(st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.1])),
        draw(st.sampled_from(Adjacency)),
        calibration,
        draw(st.sampled_from([1, 1, 2, 4])),
        max(1, int(size * draw(st.sampled_from([0.0, 0.5, 1.0])))),
    )
    return PlanRequest(
        size,
        privacy,
        bits_per_element=draw(st.floats(8.0, 64.0)) if draw(st.booleans()) else None,
        min_efficiency=0.0,
    )


@settings(max_examples=20, deadline=None)
@given(requests())
def test_every_plan_is_sound(request_: PlanRequest) -> None:
    """Within its limit, calibrated as such a filter is, no better than the law allows, no worse than simple settings."""
    chosen = plan(request_)
    privacy = request_.privacy
    assert 8 <= own(chosen).bits <= request_.limit_bits
    assert 1 <= own(chosen).hashes <= MAX_HASHES
    response = calibrate(own(chosen).bits, own(chosen).hashes, privacy)
    assert own(chosen).flip_threshold == response.threshold
    assert 0.0 <= chosen.false_positive_rate <= chosen.true_positive_rate <= 1.0
    assert all(math.isfinite(value) for value in (chosen.efficiency, chosen.attacker_accuracy_limit))
    worth = 0.99 if not request_.is_limited else 1.0
    simple = evaluate(request_.size, privacy, request_.limit_bits, 1)
    assert chosen.advantage >= worth * simple.advantage * (1.0 - 1e-3)


@settings(max_examples=60, deadline=None)
@given(requests(), st.integers(1, MAX_HASHES), st.floats(0.5, 64.0))
def test_estimates_are_near_the_exact_calibration(request_: PlanRequest, hashes: int, bits_per_element: float) -> None:
    """Within 2% in ε0 for vectors of 10,000 bits and more, or N off by one where a jump is near."""
    privacy = request_.privacy
    bits = min(2**40, max(10_000, int(request_.size * bits_per_element)))
    if hashes not in plannable_hashes(privacy):
        return
    estimate = CalibrationEstimate(privacy).epsilon0(hashes, np.array([float(bits)]))[0]
    response = calibrate(bits, hashes, privacy)
    exact = min(44.0, response.epsilon0)
    near = [exact]
    if privacy.calibration is QUANTILE:
        near += [privacy.epsilon / max(1, response.changed_bits + step) for step in (-1, 1)]
    assert min(abs(estimate / value - 1.0) for value in near) <= 0.02


@pytest.mark.parametrize("elements_per_user", [1, 8])
def test_exact_calibrations_are_rationed(elements_per_user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of them for one element a user, a handful where each is expensive."""
    priced: list[int] = []

    def counted(parameters: BloomParameters, request: PlanRequest) -> Plan:
        priced.append(parameters.hashes * request.privacy.elements_per_user)
        return planning.evaluate(parameters, request)

    monkeypatch.setattr(planner, "evaluate", counted)
    privacy = PrivacyParameters(20.0, 0.1, ADD_REMOVE, EXACT, elements_per_user, 10**9)
    plan(PlanRequest(10**9, privacy, bits_per_element=16.0, min_efficiency=0.0))
    assert priced
    assert sum(1.0 + (most / 48.0) ** 2.5 for most in priced) <= 80.0 + 3.0 * (1.0 + (max(priced) / 48.0) ** 2.5)


def test_a_request_is_not_changed_by_planning() -> None:
    """The same request gives the same plan again."""
    request = PlanRequest(1000, PrivacyParameters(3.0, 1e-6, REPLACE_ONE, min_size=1000))
    assert plan(request) == plan(replace(request))
