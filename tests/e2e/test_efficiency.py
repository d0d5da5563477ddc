"""The efficiency that the planner promises, measured through the whole service: stream, publish, fetch, ask."""

from __future__ import annotations

import math

import pytest

import veilset
from harness.service_process import ServiceProcess
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, PrivacyParameters
from veilset.core.privacy.limits import advantage_limit

SIZE = 60_000
ASKED = 60_000
DELTA = 1e-9
# A rate of SIZE answers scatters with sqrt(p(1-p)/SIZE); members that share a bit, and the fill of this one filter,
# widen that by less than a fifth. Eight times it is passed with probability below 1e-10 (normal tail at 8/1.2).
SIGMAS = 8.0


@pytest.mark.parametrize(
    ("epsilon", "bits_per_element", "least"), [(1, 16, 0.93), (3, 16, 0.93), (3, 64, 0.98), (5, 64, 0.98), (8, 8, 0.90)]
)
def test_efficiency_is_reached_end_to_end(
    service: ServiceProcess, set_name: str, epsilon: float, bits_per_element: int, least: float
) -> None:
    max_bytes = SIZE * bits_per_element // 8
    privacy = PrivacyParameters(epsilon, DELTA, Adjacency.ADD_REMOVE)
    expected = plan(PlanRequest(SIZE, privacy, max_bytes=max_bytes))
    assert expected.efficiency >= least

    with veilset.connect(service.address) as connected:
        made = connected.create_set(
            set_name, size=SIZE, epsilon=epsilon, delta=DELTA, adjacency="add-remove", max_bytes=max_bytes
        )
        assert made.encoding == expected.parameters
        connected.add(set_name, (f"member-{number}@example.com" for number in range(SIZE)))
        connected.publish(set_name)

    view = veilset.open(service.redis, set_name, public_keys=[service.public_key])
    detected = view.contains_many(f"member-{number}@example.com" for number in range(SIZE)).mean()
    mistaken = view.contains_many(f"other-{number}@example.com" for number in range(ASKED)).mean()
    efficiency = (detected - mistaken) / advantage_limit(epsilon, DELTA)
    print(f"ε={epsilon} {bits_per_element} bits: planned {expected.efficiency:.4f}, measured {efficiency:.4f}")
    detected_error = _error(expected.true_positive_rate, SIZE)
    mistaken_error = _error(expected.false_positive_rate, ASKED)
    assert abs(detected - expected.true_positive_rate) < SIGMAS * detected_error
    assert abs(mistaken - expected.false_positive_rate) < SIGMAS * mistaken_error
    slack = SIGMAS * math.hypot(detected_error, mistaken_error) / advantage_limit(epsilon, DELTA)
    assert efficiency >= least - slack


def _error(rate: float, answers: int) -> float:
    return math.sqrt(rate * (1 - rate) / answers)
