"""The drop threshold of a linear release: exact, rounded towards more noise, and refused where it would drop everything."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilset.core.encodings.linear.law import COIN_SIDES, drop_threshold
from veilset.core.encodings.linear.parameters import SECTION_COLUMNS, LinearParameters
from veilset.core.params import Adjacency, PrivacyParameters
from veilset.errors import InvalidInput

GOLDEN = Path(__file__).parents[1] / "vectors" / "linear.json"
EPSILONS = st.floats(1e-9, 64.0, allow_nan=False)
RELATIONS = st.sampled_from(list(Adjacency))


def needed(epsilon: float, relation: Adjacency, planes: int, unit: int) -> Decimal:
    """d from the document's formulas, to 200 digits; of the decimal that the float stands for."""
    q = Decimal(1 << planes)
    growth = (Decimal(repr(epsilon)) / unit).exp()
    if relation is Adjacency.REPLACE_ONE:
        return q / (q + growth - 1)
    return max(1 / growth, (q - growth) / (q - 1))


@settings(max_examples=1000)
@given(EPSILONS, RELATIONS, st.integers(1, 32), st.integers(1, 1000))
def test_threshold_is_the_smallest_that_keeps_the_promise(
    epsilon: float, relation: Adjacency, planes: int, unit: int
) -> None:
    threshold = drop_threshold(epsilon, relation, planes, unit)
    with localcontext() as context:
        context.prec = 200
        exact = needed(epsilon, relation, planes, unit) * COIN_SIDES
        assert threshold >= exact  # planted: rounding down fails here
        assert threshold - exact < 1


@pytest.mark.parametrize("relation", Adjacency)
@pytest.mark.parametrize("planes", [1, 2, 4, 11, 32])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0, 22.0])
def test_real_coin_keeps_the_ratios_within_epsilon(epsilon: float, planes: int, relation: Adjacency) -> None:
    """The dyadic d = T/2^64 that is drawn, not the ideal one, in exact fractions."""
    d = Fraction(drop_threshold(epsilon, relation, planes), COIN_SIDES)
    q = 1 << planes
    least, most = d, d + (1 - d) * q
    with localcontext() as context:
        context.prec = 100
        growth = Fraction(Decimal(repr(epsilon)).exp())
    if relation is Adjacency.ADD_REMOVE:
        assert most <= growth
        assert 1 / least <= growth
    else:
        assert most / least <= growth


def test_elements_per_user_share_epsilon() -> None:
    assert drop_threshold(3.0, Adjacency.ADD_REMOVE, 2, 3) == drop_threshold(1.0, Adjacency.ADD_REMOVE, 2)


def test_thresholds_are_those_of_the_independent_generator() -> None:
    for known in json.loads(GOLDEN.read_text())["thresholds"]:
        relation = Adjacency(known["adjacency"])
        found = drop_threshold(known["epsilon"], relation, known["planes"], known["elements_per_user"])
        assert found == known["drop_threshold"], known


def test_so_many_planes_that_all_would_be_dropped_are_refused() -> None:
    privacy = PrivacyParameters(1e-9, 0.0, Adjacency.REPLACE_ONE, elements_per_user=1000)
    with pytest.raises(InvalidInput, match=r"planes.*fewer at epsilon 1e-09"):
        LinearParameters.calibrate(privacy, {"columns": 1000, "planes": 32})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"band": 0}, "band"),
        ({"band": 129}, "band"),
        ({"planes": 0}, "planes"),
        ({"planes": 33}, "planes"),
        ({"columns": 127}, "columns"),
        ({"columns": (1 << 40) // 2 + 1}, "columns"),
        ({"columns": SECTION_COLUMNS + 1}, "columns"),
        ({"drop_threshold": 0}, "drop_threshold"),
        ({"drop_threshold": COIN_SIDES}, "drop_threshold"),
    ],
)
def test_values_out_of_range_are_refused_by_name(fields: dict[str, int], named: str) -> None:
    valid = {"columns": 1000, "band": 128, "planes": 2, "drop_threshold": 1 << 62}
    with pytest.raises(InvalidInput, match=named):
        LinearParameters(**{**valid, **fields})
