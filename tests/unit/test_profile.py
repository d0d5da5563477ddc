"""The privacy profile H_w and the δ a release reaches, against the formula itself."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.encodings.bloom.calibration import delta_bound, privacy_profile, reached_delta
from veilset.errors import InvalidInput


def profile_by_definition(changed_bits: int, epsilon: float, epsilon0: float) -> float:
    """Half-way naive: sum over all 2^w outcomes, grouped by agreement, of (P - e^ε·Q)₊."""
    kept, flipped = 1 / (1 + math.exp(-epsilon0)), 1 / (1 + math.exp(epsilon0))
    return math.fsum(
        math.comb(changed_bits, j)
        * max(
            0.0,
            kept**j * flipped ** (changed_bits - j) - math.exp(epsilon) * flipped**j * kept ** (changed_bits - j),
        )
        for j in range(changed_bits + 1)
    )


@given(st.integers(0, 60), st.floats(0, 8), st.floats(0, 4))
def test_profile_equals_its_definition(changed_bits: int, epsilon: float, epsilon0: float) -> None:
    """H_w is the hockey-stick divergence of w randomized responses."""
    expected = profile_by_definition(changed_bits, epsilon, epsilon0)
    assert privacy_profile(changed_bits, epsilon, epsilon0) == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("epsilon0", [1e-6, 0.1, 0.75, 8.0, 64.0])
@pytest.mark.parametrize(("changed_bits", "epsilon"), [(1, 0.0), (3, 1e-6), (7, 2.0), (64, 3.0), (256, 20.0)])
def test_profile_is_rounded_up(changed_bits: int, epsilon: float, epsilon0: float) -> None:
    """Never below the definition in 300 digits, above it by less than 2e-50, and exactly 0 where that is."""
    with localcontext(prec=300):
        kept = 1 / (1 + Decimal(-epsilon0).exp())
        exact = sum(
            math.comb(changed_bits, j)
            * kept**j
            * (1 - kept) ** (changed_bits - j)
            * max(Decimal(0), 1 - (Decimal(epsilon) - (2 * j - changed_bits) * Decimal(epsilon0)).exp())
            for j in range(changed_bits + 1)
        )
        bound = delta_bound((Decimal(0),) * changed_bits + (Decimal(1),), epsilon, epsilon0)
        assert bound == exact == 0 or bound == 1 or 0 < bound - exact < Decimal("2e-50")
        assert bound >= exact
        assert Decimal(privacy_profile(changed_bits, epsilon, epsilon0)) >= bound


def test_free_up_to_epsilon() -> None:
    """w·ε0 <= ε costs nothing at all, exactly; one float more costs something."""
    assert privacy_profile(4, 3.0, 0.75) == 0
    assert privacy_profile(0, 0.0, 64.0) == 0
    assert privacy_profile(30, 1.0, 0.0) == 0
    assert privacy_profile(4, 3.0, math.nextafter(0.75, 1)) > 0
    third = 1 / 3  # the float is below a third, so three of them stay below 1
    assert privacy_profile(3, 1.0, third) == 0
    assert privacy_profile(3, 1.0, math.nextafter(third, 1)) > 0


def test_extremes_are_finite() -> None:
    """Large w, ε0 and ε neither overflow nor lose the answer."""
    assert privacy_profile(256, 0.0, 64.0) == 1.0
    assert privacy_profile(256, 64.0, 64.0) == 1.0
    assert privacy_profile(2, 64.0, 64.0) > 0
    assert privacy_profile(1, 1e308, 64.0) == 0
    assert 0 < privacy_profile(256, 16_383.0, 64.0) <= 1


@given(st.integers(1, 40), st.floats(0, 6), st.floats(0, 3), st.floats(0, 1))
def test_profile_grows_with_bits_and_budget_and_falls_with_epsilon(
    changed_bits: int, epsilon: float, epsilon0: float, more: float
) -> None:
    """More changed bits or less noise cost more, a larger ε costs less; all within [0, 1]."""
    here = privacy_profile(changed_bits, epsilon, epsilon0)
    slack = 1e-15
    assert 0 <= here <= 1
    assert privacy_profile(changed_bits + 1, epsilon, epsilon0) >= here - slack
    assert privacy_profile(changed_bits, epsilon, epsilon0 + more) >= here - slack
    assert privacy_profile(changed_bits, epsilon + more, epsilon0) <= here + slack


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any), st.floats(0, 4), st.floats(0, 3))
def test_reached_delta_is_the_average_profile(weights: list[int], epsilon: float, epsilon0: float) -> None:
    """The δ of a release is the mean of H_W over the public seed."""
    distribution = tuple(Decimal(weight) / sum(weights) for weight in weights)
    expected = sum(float(p) * privacy_profile(w, epsilon, epsilon0) for w, p in enumerate(distribution))
    assert reached_delta(distribution, epsilon, epsilon0) == pytest.approx(expected, rel=1e-12, abs=1e-45)


def test_reached_delta_is_not_below_its_bound() -> None:
    """The float is the decimal rounded up."""
    distribution = (Decimal("0.25"), Decimal("0.5"), Decimal("0.25"))
    bound = delta_bound(distribution, 0.5, 0.7)
    reached = reached_delta(distribution, 0.5, 0.7)
    assert Decimal(reached) >= bound > Decimal(math.nextafter(reached, 0))


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("changed_bits", (-1, 1.0, 1.0)),
        ("changed_bits", (257, 1.0, 1.0)),
        ("epsilon", (1, -0.1, 1.0)),
        ("epsilon", (1, math.inf, 1.0)),
        ("epsilon", (1, math.nan, 1.0)),
        ("epsilon0", (1, 1.0, -0.1)),
        ("epsilon0", (1, 1.0, 64.5)),
        ("epsilon0", (1, 1.0, math.nan)),
    ],
)
def test_out_of_range_is_refused(field: str, arguments: tuple[int, float, float]) -> None:
    """Every argument is checked, and the error names it."""
    with pytest.raises(InvalidInput) as caught:
        privacy_profile(*arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("length", [0, 258])
def test_distribution_of_a_wrong_length_is_refused(length: int) -> None:
    """No probability at all, or more than W_max = 256 allows."""
    with pytest.raises(InvalidInput, match="distribution"):
        reached_delta((Decimal(0),) * length, 1.0, 1.0)
