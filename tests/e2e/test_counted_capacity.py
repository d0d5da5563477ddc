"""Sets without a declared size: a noisy count, bought out of ε, says how long each release is."""

from __future__ import annotations

from typing import Any

import pytest

import veilset
from harness.service_process import ServiceProcess, running
from veilset.core.encodings.linear.parameters import columns_for
from veilset.errors import BudgetExceeded, FailedPrecondition, InvalidInput

MEMBERS = [f"user{number}" for number in range(20_000)]
REACH = 20.7 * 20 + 20.7 * 20
"""A count at ε = 0.05 is off by more than 20.7 scales of 20 once in 10^9 runs; and as much is added to be sure."""


@pytest.mark.parametrize("encoding", ["bloom", "linear"])
def test_releases_are_made_for_their_own_count(service: ServiceProcess, set_name: str, encoding: str) -> None:
    with service.connect() as client:
        made = client.create_set(set_name, epsilon=3, adjacency="add-remove", encoding=encoding, budget_epsilon=6)
        assert (made.declared_size, made.count_epsilon) == (0, 0.05)
        capacities = []
        for first, request_id in ((0, "one"), (10_000, "two")):
            client.add(set_name, MEMBERS[first : first + 10_000])
            release = client.publish(set_name, request_id=request_id)
            again = client.publish(set_name, request_id=request_id)
            assert (again.sequence, again.header) == (release.sequence, release.header)
            header, held = release.header, first + 10_000
            assert held <= header.capacity <= held + REACH
            assert header.count is not None
            assert (header.count.epsilon, header.count.delta, header.privacy.epsilon) == (0.05, 0, 2.95)
            capacities.append(header.capacity)
        budget = client.budget(set_name)
        assert (budget.epsilon_spent, budget.delta_spent, budget.charges) == (6, "0", 4)
        with pytest.raises(BudgetExceeded):
            client.publish(set_name)
        assert client.budget(set_name).charges == 4  # a refusal buys no count
    assert capacities[1] > 1.9 * capacities[0]
    view = veilset.open(service.redis, set_name)
    assert not view.decoder.saturated
    assert view.contains_many(MEMBERS).mean() > 0.93
    size = view.size(1 - 1e-9)
    assert size.low <= 20_000 <= size.high
    assert "ε = 3" in str(view.statement)


def test_a_small_set_gets_room_for_the_noise(service: ServiceProcess, set_name: str) -> None:
    """And a count below zero is no harm."""
    with service.connect() as client:
        client.create_set(set_name, epsilon=3, adjacency="add-remove", encoding="linear", count_epsilon=0.5)
        client.add(set_name, MEMBERS[:3])
        header = client.publish(set_name).header
    assert 3 <= header.capacity <= 3 + 2 * 2 * 20.7
    assert header.encoding.fields()["columns"] == columns_for(
        header.capacity, header.encoding.facts()["drop_probability"], 128
    )


def test_what_cannot_be_is_refused_by_name(service: ServiceProcess, set_name: str) -> None:
    with service.connect() as client:
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"adjacency": "replace-one"}, "size"),
            ({"size": 1000, "count_epsilon": 0.1}, "count_epsilon"),
            ({"count_epsilon": 3.0}, "count_epsilon"),
            ({"count_epsilon": 0.00001}, "count_epsilon"),
        )
        for options, field in wrong:
            asked: dict[str, Any] = {"epsilon": 3, "adjacency": "add-remove"}
            with pytest.raises(InvalidInput) as refused:
                client.create_set(set_name, **asked | options)
            assert refused.value.field == field
        client.create_set(set_name, epsilon=3, adjacency="add-remove", encoding="linear")
        with pytest.raises(FailedPrecondition, match="no finished upload"):
            client.publish(set_name)
        client.add(set_name, MEMBERS[:100])
        with pytest.raises(InvalidInput, match="count"):
            client.publish(set_name, count_epsilon=0.1)
        assert client.budget(set_name).charges == 0


def test_a_vector_is_never_longer_than_the_service_allows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The capacity is cut then, and nothing is refused: a refusal would tell the count for nothing."""
    folder = tmp_path_factory.mktemp("small") / "state"
    with running(ServiceProcess(folder, ["--max-bits", "65536"])) as small, small.connect() as client:
        client.create_set(
            "s", epsilon=3, adjacency="add-remove", encoding="linear", columns=1000, planes=4, allow_poor_utility=True
        )
        client.add("s", MEMBERS)
        header = client.publish("s").header
        assert 8 * header.encoding.vector_bytes <= 65536
        assert header.capacity < 20_000
