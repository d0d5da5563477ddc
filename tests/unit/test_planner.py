"""Planner: the published figures, its four objectives, limits, defaults, and what more would buy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.shapes import evaluate, own
from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.decoder import Rule
from veilset.core.encodings.planning import (
    LargestTruePositiveRate,
    Objective,
    PlanRequest,
    SmallestFalsePositiveRate,
    SmallestVector,
    alternatives,
    efficiency_curve,
)
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.errors import InvalidInput, PoorUtility

SIZE = 1_000_000
EXACT, WORST_CASE = Calibration.EXACT, Calibration.WORST_CASE


def promise(epsilon: float, calibration: Calibration = Calibration.W_QUANTILE, min_size: int = 1) -> PrivacyParameters:
    return PrivacyParameters(epsilon, 1e-9, Adjacency.ADD_REMOVE, calibration, min_size=min_size)


@pytest.mark.parametrize(
    ("epsilon", "bits_per_element", "efficiency"),
    [(1.0, 16.0, 0.93), (3.0, 16.0, 0.93), (3.0, 64.0, 0.98), (5.0, 64.0, 0.98), (8.0, 8.0, 0.90)],
)
@pytest.mark.parametrize("calibration", Calibration)
def test_efficiency_floors(
    epsilon: float, bits_per_element: float, efficiency: float, calibration: Calibration
) -> None:
    """The efficiencies that the service promises are reached under every calibration."""
    chosen = plan(PlanRequest(SIZE, promise(epsilon, calibration), bits_per_element=bits_per_element))
    assert chosen.efficiency >= efficiency
    assert own(chosen).bits <= bits_per_element * SIZE


@pytest.mark.parametrize(("epsilon", "many_hashes", "one_hash"), [(1.0, 0.009, 0.41), (3.0, 0.04, 0.80)])
def test_many_hashes_drown_in_noise(epsilon: float, many_hashes: float, one_hash: float) -> None:
    """At 8 bits per element k = 6 with the all-ones rule has next to no advantage, where one hash has nearly all."""
    priced = evaluate(SIZE, promise(epsilon), 8 * SIZE, 6, rule=Rule.ALL_ONES)
    assert priced.advantage == pytest.approx(many_hashes, abs=5e-4 if epsilon < 2 else 5e-3)
    assert evaluate(SIZE, promise(epsilon), 8 * SIZE, 1).advantage == pytest.approx(one_hash, abs=5e-3)


def test_numbers_of_a_plan_agree_with_their_definitions() -> None:
    """Noise from the calibration, limits from the promise as it is charged, bytes from bits."""
    privacy = promise(8.0)
    chosen = plan(PlanRequest(SIZE, privacy, max_bytes=SIZE))
    response = calibrate(own(chosen).bits, own(chosen).hashes, privacy)
    assert (own(chosen).flip_threshold, own(chosen).changed_bits) == (response.threshold, response.changed_bits)
    assert chosen.advantage == chosen.true_positive_rate - chosen.false_positive_rate
    assert chosen.advantage_limit == pytest.approx(math.tanh(4.0), abs=1e-9)
    assert chosen.efficiency == pytest.approx(chosen.advantage / chosen.advantage_limit)
    assert chosen.attacker_accuracy_limit == pytest.approx((1.0 + chosen.advantage_limit) / 2.0)
    assert chosen.bytes == (own(chosen).bits + 7) // 8 <= SIZE
    assert chosen.bits_per_element == 8 * chosen.bytes / SIZE
    assert {"encoding", "bits", "hashes", "flip_probability", "efficiency", "bytes"} <= set(chosen.record())


@pytest.mark.parametrize(("delta", "charged"), [(1e-9, 0.0), (0.1, 0.1)])
def test_a_plan_without_credit_for_size_is_pure(delta: float, charged: float) -> None:
    """N = W_max: the promise holds with δ = 0 whatever the hash does; where W is capped by δ it does not."""
    privacy = PrivacyParameters(3.0, delta, Adjacency.REPLACE_ONE, min_size=SIZE)
    chosen = evaluate(SIZE, privacy, SIZE, 2)
    assert chosen.privacy.delta == charged
    assert (chosen.privacy.calibration is WORST_CASE) == (charged == 0.0)


def test_prediction_by_hand() -> None:
    """One hash, ε0 = ε = ln 3: a quarter is flipped; a vector of as many bits as elements is full to 1 - 1/e."""
    priced = evaluate(SIZE, promise(math.log(3.0), WORST_CASE), SIZE, 1)
    assert priced.true_positive_rate == pytest.approx(0.75, abs=1e-12)
    assert priced.false_positive_rate == pytest.approx(0.25 + 0.5 * (1.0 - math.exp(-1.0)), abs=1e-6)


def test_evaluate_answers_however_poor() -> None:
    """32 hashes at ε = 0.01 in a vector far too short: an efficiency near 0, and no error."""
    poor = evaluate(SIZE, promise(0.01), 1000, 32)
    assert 0.0 <= poor.efficiency < 1e-3


def test_without_a_limit_the_plan_is_frugal() -> None:
    """The shortest vector within 1% of the best of up to 64 bits per element: 0.984·0.99 of the limit, at 39 bits."""
    chosen = plan(PlanRequest(SIZE, promise(1.0)))
    best = plan(PlanRequest(SIZE, promise(1.0), bits_per_element=64.0))
    assert chosen.advantage >= 0.99 * best.advantage
    assert own(chosen).bits < 40 * SIZE
    shorter = evaluate(SIZE, promise(1.0), int(own(chosen).bits * 0.999), own(chosen).hashes)
    assert shorter.advantage < 0.99 * best.advantage


def test_smaller_of_two_limits_holds() -> None:
    """Bytes and bits per element may be given together."""
    request = PlanRequest(SIZE, promise(3.0), max_bytes=SIZE, bits_per_element=4.0)
    assert request.limit_bits == 4 * SIZE
    assert replace(request, bits_per_element=16.0).limit_bits == 8 * SIZE


@pytest.mark.parametrize("calibration", Calibration)
@pytest.mark.parametrize(
    "objective", [SmallestFalsePositiveRate(0.9), LargestTruePositiveRate(0.1)], ids=lambda o: type(o).__name__
)
def test_limits_of_an_objective_are_kept(objective: Objective, calibration: Calibration) -> None:
    """The rates obey the objective's own limit, and the threshold is the one a decoder with that limit would choose."""
    privacy = promise(5.0, calibration)
    chosen = plan(PlanRequest(SIZE, privacy, bits_per_element=12.0, objective=objective))
    limits = objective.limits()
    again = evaluate(
        SIZE,
        privacy,
        own(chosen).bits,
        own(chosen).hashes,
        max_false_positive_rate=limits.max_false_positive_rate,
        min_true_positive_rate=limits.min_true_positive_rate,
    )
    assert again == chosen
    assert chosen.true_positive_rate >= (limits.min_true_positive_rate or 0.0)
    assert chosen.false_positive_rate <= (limits.max_false_positive_rate or 1.0)


def test_smallest_vector_is_the_smallest() -> None:
    """One bit less, with any number of hashes that could matter, misses the efficiency."""
    request = PlanRequest(20_000, promise(3.0), objective=SmallestVector(0.9))
    chosen = plan(request)
    assert chosen.efficiency >= 0.9
    for hashes in range(1, 9):
        assert evaluate(20_000, request.privacy, own(chosen).bits - 1, hashes).efficiency < 0.9


def test_all_ones_rule_is_kept() -> None:
    """The planner then chooses only m and k, and is never better than with free thresholds."""
    request = PlanRequest(SIZE, replace(promise(8.0), adjacency=Adjacency.REPLACE_ONE), bits_per_element=24.0)
    bound = plan(replace(request, rule=Rule.ALL_ONES))
    assert bound.advantage <= plan(request).advantage


def test_coverage_credit_can_make_a_shorter_vector_better() -> None:
    """δ = 0.1, a promised size, at most one bit per element: at 0.86 of it one of two changed bits is covered often
    enough for N = 1, which is worth far more than the longer vector without the credit."""
    privacy = PrivacyParameters(1.0, 0.1, Adjacency.REPLACE_ONE, min_size=SIZE)
    credited = plan(PlanRequest(SIZE, privacy, bits_per_element=1.0))
    plain = plan(PlanRequest(SIZE, replace(privacy, min_size=1), bits_per_element=1.0))
    assert (own(plain).bits, own(plain).changed_bits) == (SIZE, 2)
    assert own(credited).bits < 0.9 * SIZE
    assert own(credited).changed_bits == 1
    assert credited.advantage > 1.4 * plain.advantage


def test_alternatives_double_one_thing_at_a_time() -> None:
    """Twice ε in the same bytes, and twice the bytes at the same ε, each what a plan of its own would be."""
    request = PlanRequest(SIZE, promise(1.0), max_bytes=SIZE)
    chosen = plan(request)
    more = alternatives(request, chosen)
    assert more.doubled_epsilon == plan(replace(request, privacy=promise(2.0)))
    assert more.doubled_bytes == plan(replace(request, max_bytes=2 * SIZE))


def test_alternatives_out_of_range_are_none() -> None:
    """ε beyond 64 and vectors beyond 2^40 bits are not offered."""
    request = PlanRequest(10**10, promise(40.0), max_bytes=2**37)
    more = alternatives(request, evaluate(10**10, request.privacy, 2**40, 2))
    assert more.doubled_epsilon is None
    assert more.doubled_bytes is None


def test_alternatives_of_an_unlimited_request_start_from_the_plan() -> None:
    """Twice the size means twice the plan's bytes; a smallest-vector wish becomes the largest advantage."""
    request = PlanRequest(SIZE, promise(1.0), objective=SmallestVector(0.8))
    chosen = plan(request)
    more = alternatives(request, chosen)
    assert more.doubled_bytes is not None
    assert chosen.bytes < more.doubled_bytes.bytes <= 2 * chosen.bytes
    assert more.doubled_bytes.advantage > chosen.advantage


def test_efficiency_curve_leaves_out_impossible_sizes() -> None:
    """Ten elements in half a bit each do not fill the shortest vector; the others are planned."""
    curve = efficiency_curve(BloomParameters, PlanRequest(10, promise(3.0)), [0.5, 4.0, 16.0])
    assert [size for size, _ in curve] == [4.0, 16.0]
    assert curve[0][1].efficiency < curve[1][1].efficiency


@pytest.mark.parametrize("calibration", [Calibration.W_QUANTILE, EXACT])
def test_too_many_elements_per_user(calibration: Calibration) -> None:
    """Refused with the way out, which works."""
    privacy = replace(promise(1.0, calibration), elements_per_user=300)
    with pytest.raises(InvalidInput, match="worst-case"):
        plan(PlanRequest(SIZE, privacy))
    plan(PlanRequest(SIZE, replace(privacy, calibration=WORST_CASE), min_efficiency=0.0))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("size", {"size": 0}),
        ("size", {"size": 10**12 + 1}),
        ("max_bytes", {"max_bytes": 0}),
        ("bits_per_element", {"bits_per_element": 0.0}),
        ("bits_per_element", {"bits_per_element": math.nan}),
        ("bits_per_element", {"size": 2, "bits_per_element": 3.9}),
        ("min_efficiency", {"min_efficiency": 1.0}),
        ("min_efficiency", {"min_efficiency": math.nan}),
        ("rule", {"rule": "most"}),
        ("min_size", {"size": 10, "privacy": promise(1.0, min_size=11)}),
    ],
)
def test_wrong_requests_are_refused(field: str, change: dict[str, object]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidInput) as caught:
        PlanRequest(**({"size": SIZE, "privacy": promise(1.0)} | change))  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_objectives_take_shares_only(share: float) -> None:
    """Between 0 and 1, exclusive."""
    for objective in (SmallestFalsePositiveRate, LargestTruePositiveRate, SmallestVector):
        with pytest.raises(InvalidInput):
            objective(share)


def test_evaluate_refuses_an_unreachable_limit() -> None:
    """A limit is no rule: where it cannot be reached there is no plan to price."""
    with pytest.raises(PoorUtility, match="max_false_positive_rate"):
        evaluate(SIZE, promise(1.0), 8 * SIZE, 1, max_false_positive_rate=0.01)
