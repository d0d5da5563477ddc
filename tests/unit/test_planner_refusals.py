"""Refusals of the planner: the numbers in them are true, and what they name works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.shapes import own
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.planning import (
    LargestAdvantage,
    LargestTruePositiveRate,
    Plan,
    PlanRequest,
    SmallestFalsePositiveRate,
    SmallestVector,
)
from veilset.core.params import MAX_EPSILON, Adjacency, Calibration, PrivacyParameters
from veilset.errors import PoorUtility

SIZE = 1_000_000
PRIVACY = PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE)
COVERED = PrivacyParameters(0.5, 1e-6, Adjacency.REPLACE_ONE, Calibration.EXACT, min_size=SIZE)

REQUESTS = {
    "too short": PlanRequest(SIZE, PRIVACY, bits_per_element=0.05),
    "too efficient": PlanRequest(SIZE, PRIVACY, bits_per_element=16.0, objective=SmallestVector(0.95)),
    "efficiency as a floor": PlanRequest(SIZE, PRIVACY, bits_per_element=4.0, min_efficiency=0.9),
    "too few false positives": PlanRequest(
        SIZE, PRIVACY, bits_per_element=16.0, objective=LargestTruePositiveRate(0.01)
    ),
    "too many true positives": PlanRequest(
        SIZE, COVERED, bits_per_element=1.0, objective=SmallestFalsePositiveRate(0.99)
    ),
    "small": PlanRequest(50, PRIVACY, bits_per_element=2.0, min_efficiency=0.8),
}


def refused(request: PlanRequest) -> PoorUtility:
    with pytest.raises(PoorUtility) as caught:
        plan(request)
    return caught.value


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_named_settings_work(request_: PlanRequest) -> None:
    """The named length at the same ε, and the named ε in the same length, are each accepted; at least one is named."""
    error = refused(request_)
    assert {"needed_bytes", "needed_epsilon"} & set(error.details)
    if "needed_bytes" in error.details:
        assert int(error.details["needed_bytes"]) > request_.limit_bits // 8
        plan(replace(request_, bits_per_element=None, max_bytes=int(error.details["needed_bytes"])))
    if "needed_epsilon" in error.details:
        epsilon = float(error.details["needed_epsilon"])
        assert request_.privacy.epsilon < epsilon <= MAX_EPSILON
        plan(replace(request_, privacy=replace(request_.privacy, epsilon=epsilon)))


def test_named_settings_are_near() -> None:
    """A percent less length is not enough, and neither is a tenth less of the extra ε."""
    request = REQUESTS["too efficient"]
    details = refused(request).details
    refused(replace(request, bits_per_element=None, max_bytes=int(0.99 * int(details["needed_bytes"]))))
    epsilon = 1.0 + 0.9 * (float(details["needed_epsilon"]) - 1.0)
    refused(replace(request, privacy=replace(PRIVACY, epsilon=epsilon)))


def test_message_says_what_is_possible() -> None:
    """The wish, the limit, the best there is, and the way out, with numbers."""
    error = refused(REQUESTS["too efficient"])
    assert "an efficiency of at least 0.95" in error.message
    assert "16000000 bits" in error.message
    assert "1 hash: true positives 73.11%, false positives 29.69%, efficiency 0.939" in error.message
    assert f"max_bytes {error.details['needed_bytes']}" in error.message
    assert f"epsilon {error.details['needed_epsilon']}" in error.message
    assert error.details["best_efficiency"].startswith("0.939")


def test_message_says_what_giving_up_the_limit_would_bring() -> None:
    """The false positive limit is what stands in the way, and the plan without it is named."""
    message = refused(
        PlanRequest(SIZE, PRIVACY, bits_per_element=32.0, objective=LargestTruePositiveRate(0.01))
    ).message
    assert "a false positive rate of at most 0.01 with an efficiency of at least 0.05" in message
    assert "without that limit bloom, 32000000 bits, 1 hash" in message


def test_poor_utility_can_be_asked_for() -> None:
    """min_efficiency = 0 takes what comes, which is what the refusal called the best."""
    request = REQUESTS["too short"]
    chosen = plan(replace(request, min_efficiency=0.0))
    assert isinstance(chosen, Plan)
    assert isinstance(request.objective, LargestAdvantage)
    assert refused(request).details["best_hashes"] == str(own(chosen).hashes)


def test_hopeless_requests_say_so() -> None:
    """64 elements a user of a set of 64: nothing within reach, and no setting is made up."""
    privacy = PrivacyParameters(1.0, 0.0, Adjacency.REPLACE_ONE, Calibration.WORST_CASE, elements_per_user=1000)
    error = refused(PlanRequest(1000, privacy, bits_per_element=1.0, objective=SmallestVector(0.999)))
    assert not {"needed_bytes", "needed_epsilon"} & set(error.details)
    assert "nearest that do: none" in error.message
