"""Linear plans and laws: rates on the frontier, objectives, refusals that say what would do, the cliff, and estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilset.core.encodings.decoder import Rule, make_decoder
from veilset.core.encodings.interface import MemoryVector
from veilset.core.encodings.linear.law import expected_dependence, probes
from veilset.core.encodings.linear.parameters import SECTION_COLUMNS, LinearParameters
from veilset.core.encodings.planning import (
    LargestTruePositiveRate,
    PlanRequest,
    SmallestFalsePositiveRate,
    SmallestVector,
    evaluate,
)
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.errors import InvalidInput, PoorUtility, Unsupported


def promise(epsilon: float, relation: Adjacency = Adjacency.ADD_REMOVE, unit: int = 1) -> PrivacyParameters:
    return PrivacyParameters(epsilon, 1e-6, relation, elements_per_user=unit)


@pytest.mark.parametrize(
    ("epsilon", "planes", "missed", "mistaken", "bits"),
    [(1, 2, 0.320, 0.250, 1.2), (2, 3, 0.118, 0.125, 2.7), (3, 4, 0.047, 0.062, 4.0), (5, 7, 0.0067, 0.0078, 7.3)],
)
def test_plans_of_a_million_are_those_of_the_table(
    epsilon: float, planes: int, missed: float, mistaken: float, bits: float
) -> None:
    plan = LinearParameters.plan(PlanRequest(10**6, promise(epsilon)))
    assert isinstance(plan.parameters, LinearParameters)
    assert plan.capacity == 1_250_000
    assert plan.parameters.planes == planes
    assert 1.0 - plan.true_positive_rate == pytest.approx(missed, abs=6e-4)
    assert plan.false_positive_rate == pytest.approx(mistaken, abs=6e-4)
    assert plan.bits_per_element <= 1.25 * bits * 1.02
    assert (plan.privacy.delta, plan.privacy.calibration) == (0.0, Calibration.WORST_CASE)


@pytest.mark.parametrize("relation", Adjacency)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_rates_never_pass_the_limit_of_privacy(epsilon: float, relation: Adjacency) -> None:
    for planes in range(1, 20):
        parameters = LinearParameters.calibrate(promise(epsilon, relation), {"columns": 1000, "planes": planes})
        law = parameters.expected_law(10)
        ratios = law.members / law.others
        assert np.all(np.abs(np.log(ratios)) <= epsilon + 1e-9)
        if relation is Adjacency.ADD_REMOVE:  # one of the two is reached for every q
            assert np.max(np.abs(np.log(ratios))) == pytest.approx(epsilon)


def test_few_false_positives_where_bloom_refuses() -> None:
    plan = LinearParameters.plan(PlanRequest(10**5, promise(7.0), objective=LargestTruePositiveRate(0.001)))
    assert plan.false_positive_rate <= 0.001
    assert plan.true_positive_rate > 0.998


def test_objectives_find_their_best() -> None:
    strict = LinearParameters.plan(PlanRequest(10**5, promise(3.0), objective=SmallestFalsePositiveRate(0.3)))
    assert strict.true_positive_rate >= 0.3
    assert strict.false_positive_rate < 0.03
    small = LinearParameters.plan(PlanRequest(10**5, promise(3.0), objective=SmallestVector(0.5)))
    usual = LinearParameters.plan(PlanRequest(10**5, promise(3.0)))
    assert small.bytes < usual.bytes
    assert small.efficiency >= 0.5


def test_a_size_limit_is_kept_or_refused_with_what_it_takes() -> None:
    usual = LinearParameters.plan(PlanRequest(10**5, promise(3.0)))
    smaller = LinearParameters.plan(PlanRequest(10**5, promise(3.0), max_bytes=usual.bytes - 1))
    assert smaller.bytes < usual.bytes
    with pytest.raises(PoorUtility, match=r"it takes \d+ bytes instead of 1000") as refused:
        LinearParameters.plan(PlanRequest(10**5, promise(3.0), max_bytes=1000))
    needed = int(refused.value.details["needed_bytes"])
    assert LinearParameters.plan(PlanRequest(10**5, promise(3.0), max_bytes=needed)).bytes == needed


def test_a_limit_that_privacy_forbids_is_refused_with_the_epsilon_it_takes() -> None:
    request = PlanRequest(10**4, promise(1.0), objective=SmallestFalsePositiveRate(0.999))
    with pytest.raises(PoorUtility, match=r"it takes epsilon [\d.]+ instead of 1") as refused:
        LinearParameters.plan(request)
    epsilon = float(refused.value.details["needed_epsilon"])
    plan = LinearParameters.plan(PlanRequest(10**4, promise(epsilon), objective=SmallestFalsePositiveRate(0.999)))
    assert plan.true_positive_rate >= 0.999


def test_elements_per_user_and_replace_one_cost_their_price() -> None:
    alone, three = (LinearParameters.plan(PlanRequest(10**4, promise(6.0, unit=unit))) for unit in (1, 3))
    assert alone.advantage > three.advantage
    assert three.advantage == pytest.approx(LinearParameters.plan(PlanRequest(10**4, promise(2.0))).advantage)
    swapped = LinearParameters.plan(PlanRequest(10**4, promise(6.0, Adjacency.REPLACE_ONE)))
    assert swapped.advantage < alone.advantage


def test_the_cliff_behind_the_capacity_is_priced() -> None:
    request = PlanRequest(8 * 10**5, promise(3.0))
    parameters = LinearParameters.plan(request).parameters
    efficiencies = []
    for share in (1.0, 1.04, 1.06, 1.1):
        law = parameters.expected_law(round(share * 10**6))
        efficiencies.append(float(law.members[1] - law.others[1]) / request.advantage_limit)
    assert efficiencies == pytest.approx([0.984, 0.84, 0.16, 0.001], abs=0.05)
    assert parameters.expected_law(11 * 10**5).saturated


def test_resized_parameters_have_the_same_rates() -> None:
    privacy = promise(3.0)
    parameters = LinearParameters.plan(PlanRequest(10**5, privacy)).parameters
    for capacity in (1, 1000, 10**7, 10**12):
        other = parameters.resized(privacy, made_for=10**5, capacity=capacity)
        assert (other.planes, other.drop_threshold) == (parameters.planes, parameters.drop_threshold)  # type: ignore[attr-defined]
    assert parameters.resized(privacy, made_for=1, capacity=125_000) == parameters


def test_long_vectors_have_sections_of_whole_words() -> None:
    parameters = LinearParameters.plan(PlanRequest(10**8, promise(3.0))).parameters
    assert isinstance(parameters, LinearParameters)
    assert parameters.sections == -(-parameters.columns // SECTION_COLUMNS) > 20
    assert parameters.section_columns % 64 == 0


def test_a_header_with_too_little_noise_is_refused() -> None:
    parameters = LinearParameters.plan(PlanRequest(1000, promise(3.0))).parameters
    parameters.check(promise(3.0))
    parameters.check(promise(3.5))
    with pytest.raises(InvalidInput, match="drop_threshold"):
        parameters.check(promise(2.9))


def released(parameters: LinearParameters, count: int) -> MemoryVector:
    digests = np.unique(np.random.default_rng(7).integers(0, 1 << 64, count, dtype=np.uint64))
    vector = b"".join(parameters.encode([digests], np.random.default_rng(8).bytes))
    return MemoryVector(np.frombuffer(vector, np.uint8))


@pytest.mark.parametrize(("share", "saturated"), [(0.5, False), (1.0, False), (1.2, True)])
def test_a_self_test_shows_whether_a_vector_is_saturated(share: float, saturated: bool) -> None:
    parameters = LinearParameters.plan(PlanRequest(16_000, promise(3.0))).parameters
    assert isinstance(parameters, LinearParameters)
    law = parameters.law(released(parameters, round(20_000 * share)))
    assert law.saturated is saturated
    measured = law.facts["measured_false_positive_rate"]
    if saturated:
        assert measured > 0.9
        assert not law.scores.any()
        assert not make_decoder(law).accepts.any()
    else:
        assert abs(measured - 1 / 16) < 6 * math.sqrt(15 / 256 / len(probes(1 << 14)))


def test_a_vector_a_little_too_full_has_the_law_that_it_shows() -> None:
    parameters = LinearParameters(20_000, 128, 4, 1 << 58)
    law = parameters.law(released(parameters, 20_100))
    others = float(law.others[1])
    assert 0.1 < others < 0.95
    assert others == pytest.approx(law.facts["measured_false_positive_rate"])
    assert make_decoder(law).false_positive_rate == others
    assert expected_dependence(parameters, 10_000) == 0.0


def test_all_ones_rule_and_limits_work_on_two_readings() -> None:
    law = LinearParameters.calibrate(promise(3.0), {"columns": 1000, "planes": 4}).expected_law(100)
    assert make_decoder(law, rule=Rule.ALL_ONES).accepts.tolist() == [False, True]
    assert make_decoder(law, max_false_positive_rate=0.1).accepts.tolist() == [False, True]
    with pytest.raises(PoorUtility, match=r"smallest possible is 0\.0625"):
        make_decoder(law, max_false_positive_rate=0.05)


def test_overlap_of_a_list_has_an_interval_around_the_truth() -> None:
    parameters = LinearParameters.calibrate(promise(3.0), {"columns": 100_000, "planes": 4})
    law = parameters.expected_law(100)
    expected = 4000 * float(law.members[1]) + 6000 * float(law.others[1])
    found = parameters.overlap(law, np.array([10_000 - round(expected), round(expected)]), 0.95)
    assert found.estimate == pytest.approx(4000, abs=1)
    assert 40 < found.high - found.estimate < 60  # 1.96 standard deviations of 25 to 27
    assert found.own_size == 10_000
    nothing = parameters.overlap(law, np.array([0, 0]), 0.95)
    assert (nothing.estimate, nothing.low, nothing.high) == (0, 0, 0)


def test_overlap_with_a_saturated_release_says_nothing() -> None:
    parameters = LinearParameters.calibrate(promise(3.0), {"columns": 1000, "planes": 4})
    found = parameters.overlap(parameters.expected_law(5000), np.array([0, 50]), 0.95)
    assert found.interval == (0, 50)


def test_size_and_comparison_are_refused_with_what_to_do() -> None:
    parameters = LinearParameters.calibrate(promise(3.0), {"columns": 1000, "planes": 4})
    vector = released(parameters, 10)
    with pytest.raises(Unsupported, match=r"overlap with a list.*noisy count"):
        parameters.size(vector, 0.95)
    with pytest.raises(Unsupported, match=r"by overlap.*encoding bloom"):
        parameters.compare((vector, vector), parameters, 0.95)


def test_evaluate_prices_what_is_given() -> None:
    request = PlanRequest(10**5, promise(3.0))
    poor = evaluate(LinearParameters.calibrate(promise(3.0), {"columns": 50_000, "planes": 4}), request)
    assert poor.advantage < 0.01
