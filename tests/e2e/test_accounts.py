"""A statement says no less of its account than the truth: an account has one relation and one unit, and keeps its sets."""

from __future__ import annotations

from typing import Any

import pytest

from harness.programs import veilset
from harness.service_process import ServiceProcess
from veilset.core.privacy.statement import make_statement
from veilset.errors import BudgetExceeded, FailedPrecondition


def test_a_set_made_again_is_charged_where_it_was(service: ServiceProcess, set_name: str) -> None:
    """With another account it would publish again and say that 3 are spent, where readers hold two releases of 3."""
    promise = ("--size", 1000, "--epsilon", 3, "--adjacency", "add-remove", "--server", service.address)
    with service.connect() as connection:
        connection.create_set(set_name, size=1000, epsilon=3, adjacency="add-remove", budget_epsilon=3)
        connection.add(set_name, ["element"])
        connection.publish(set_name)
        connection.delete_set(set_name)
        refusal = veilset("create", set_name, *promise, "--account", f"{set_name}.new").complaint()
        assert refusal.startswith(f"account: the name {set_name} belongs to the budget account {set_name} for good")
        assert f"veilset budget --account {set_name} --raise-epsilon" in refusal
        assert veilset("create", set_name, *promise).code == 0
        connection.add(set_name, ["element"])
        with pytest.raises(BudgetExceeded):
            connection.publish(set_name)
        connection.raise_budget(set_name, epsilon=6, reason="published once more")
        release = connection.publish(set_name)
    assert release.sequence == 2
    assert make_statement(release.header).total_epsilon == 6


@pytest.mark.parametrize(
    ("field", "other"),
    [("adjacency", {"adjacency": "replace-one"}), ("elements_per_user", {"elements_per_user": 2})],
)
def test_sets_of_another_relation_or_unit_stay_apart(
    service: ServiceProcess, set_name: str, field: str, other: dict[str, Any]
) -> None:
    """Add-remove at 3 and replace-one at 3 are not 6: a swap in both costs 6 in the first alone."""
    own: dict[str, Any] = {"size": 1000, "epsilon": 3, "adjacency": "add-remove", "budget_epsilon": 12}
    with service.connect() as connection:
        connection.create_set(f"{set_name}.a", account=set_name, **own)
        with pytest.raises(FailedPrecondition, match=f"^{field}: budget account {set_name} sums releases with {field}"):
            connection.create_set(f"{set_name}.b", account=set_name, **(own | other))
        connection.create_set(f"{set_name}.b", **(own | other))
        budget = connection.budget(account=set_name)
        assert (budget.adjacency, budget.elements_per_user) == ("add-remove", 1)
