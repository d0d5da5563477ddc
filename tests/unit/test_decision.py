"""The decision that costs least."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.estimates.results import decide
from veilset.errors import InvalidInput

costs = st.one_of(st.just(0.0), st.floats(1e-9, 1e9))
beliefs = st.floats(0.0, 1.0)


@given(beliefs, costs, costs)
def test_no_decision_costs_less(posterior: float, needless: float, missed: float) -> None:
    """Ties go to "not a member"."""
    if needless == missed == 0.0:
        return
    found = decide(posterior, (0.0, 1.0), needless, missed)
    assert found.expected_cost == ((1 - posterior) * needless if found.member else posterior * missed)
    assert found.expected_cost <= min((1 - posterior) * needless, posterior * missed) * (1 + 1e-12) + 1e-300
    assert 0.0 <= found.cutoff <= 1.0
    if abs(posterior - found.cutoff) > 1e-12:
        assert found.member == (posterior > found.cutoff)


@pytest.mark.parametrize(
    ("possible", "foregone"), [((0.1, 0.9), False), ((0.1, 0.4), True), ((0.6, 0.9), True), ((0.5, 0.5), True)]
)
def test_a_decision_is_foregone_if_no_answer_could_change_it(possible: tuple[float, float], foregone: bool) -> None:
    assert decide(possible[0], possible, 1.0, 1.0).foregone == foregone


def test_costs_move_the_cutoff() -> None:
    """A missed member that costs 50 times as much is treated as one from 1/51 on."""
    assert decide(0.03, (0.0, 1.0), 1.0, 50.0).member
    assert not decide(0.01, (0.0, 1.0), 1.0, 50.0).member
    assert decide(0.5, (0.0, 1.0), 1.0, 50.0).cutoff == pytest.approx(1 / 51)
    assert not decide(0.5, (0.0, 1.0), 1.0, 1.0).member


@pytest.mark.parametrize(
    ("needless", "missed", "field"),
    [
        (-1.0, 1.0, "cost_false_positive"),
        (math.nan, 1.0, "cost_false_positive"),
        (1.0, math.inf, "cost_false_negative"),
        (0.0, 0.0, "cost_false_negative"),
    ],
)
def test_costs_out_of_range_are_refused(needless: float, missed: float, field: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field}"):
        decide(0.5, (0.0, 1.0), needless, missed)
