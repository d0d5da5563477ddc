"""The law that a count's noise is really drawn from, in whole numbers of 2^-64: private for what is charged, for every shift
that one user can cause; and the statistic never shifts by more."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from harness.shapes import parameters
from veilset.core.params import Adjacency, HashParameters, Normalization, PrivacyParameters
from veilset.core.privacy.budget import charge_delta
from veilset.core.privacy.counts import (
    RANDOM_INTEGERS,
    STANDARD_DEVIATION,
    CountMechanism,
    CountNoise,
    calibrate_count,
    grid_delta,
    integer_noise,
    normal_tail,
)
from veilset.core.privacy.exact import decimal_digits
from veilset.errors import InvalidInput
from veilset_server.records import SetDescription
from veilset_server.usecases.budgets import CountPurchase, count_noise

LAWS = list(CountMechanism)
PURCHASES = [
    *((law, *price) for law in LAWS for price in ((1.0, 1e-3, 1), (3.0, 1e-6, 2), (16.0, 0.01, 3))),
    (CountMechanism.LAPLACE, 0.7, 0.0, 2),
]
"""Law, ε, δ and sensitivity."""


def least_integer(noise: CountNoise, z: int) -> int:
    """The smallest u that gives at least z; the noise grows with u."""
    low, high = 0, RANDOM_INTEGERS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if integer_noise(noise, middle) >= z else (middle + 1, high)
    return low


def drawn_law(noise: CountNoise) -> list[int]:
    """The number of integers that give -z, …, z, for the largest size z of the noise."""
    most = integer_noise(noise, RANDOM_INTEGERS - 1)
    starts = [least_integer(noise, z) for z in range(1, most + 1)]
    for u in (0, 1, *starts):
        assert integer_noise(noise, RANDOM_INTEGERS - 1 - u) == -integer_noise(noise, u)  # so one half gives the other
    upper = [end - start for start, end in pairwise([*starts, RANDOM_INTEGERS])]
    return [*reversed(upper), RANDOM_INTEGERS - 2 * sum(upper), *upper]


@pytest.mark.parametrize(("mechanism", "epsilon", "delta", "sensitivity"), PURCHASES)
def test_what_is_drawn_is_private_for_what_is_charged(
    mechanism: CountMechanism, epsilon: float, delta: float, sensitivity: int
) -> None:
    """Hockey-stick divergence of the drawn law from itself, shifted by 1 … Δ (either way: the law is symmetric)."""
    noise = calibrate_count(epsilon, delta, sensitivity, mechanism)
    counts = drawn_law(noise)
    with decimal_digits(50):
        growth = Fraction(Decimal(repr(noise.epsilon)).exp())
    for shift in range(1, sensitivity + 1):
        padded = [0] * shift + counts
        shifted = counts + [0] * shift
        excess = sum(max(Fraction(0), one - growth * other) for one, other in zip(padded, shifted, strict=True))
        assert excess / RANDOM_INTEGERS <= charge_delta(noise.delta), (noise, shift)


def ideal_tail(noise: CountNoise, x: Decimal) -> Decimal:
    """P(X > x) of the continuous law, x > 0."""
    scaled = x / Decimal(noise.scale)
    match noise.mechanism:
        case CountMechanism.LAPLACE:
            return (-scaled).exp() / 2
        case CountMechanism.LOGISTIC:
            return 1 / (1 + scaled.exp())
        case _:
            return normal_tail(scaled)


@pytest.mark.parametrize("mechanism", LAWS)
@pytest.mark.parametrize("scale", [0.3, 2.5])
def test_every_tail_is_the_ideal_one_rounded(mechanism: CountMechanism, scale: float) -> None:
    """P(Z >= z) is P(X > z - 1/2) to the nearest multiple of 2^-64; so all errors together stay below what is charged."""
    noise = CountNoise(mechanism, scale, 1, 1.0, 1e-3)
    most = integer_noise(noise, RANDOM_INTEGERS - 1)
    errors = Decimal(0)
    with decimal_digits(100):
        for z in range(1, most + 2):
            ideal = ideal_tail(noise, z - Decimal("0.5")) * RANDOM_INTEGERS
            drawn = RANDOM_INTEGERS - least_integer(noise, z)
            assert abs(ideal - drawn) <= Decimal("0.5")
            errors += 2 * abs(ideal - drawn) / RANDOM_INTEGERS
    assert (1 + np.e) * float(errors) <= grid_delta(scale, 1.0)


def test_scales_are_those_of_the_laws() -> None:
    """Standard deviations at ε = 1, δ = 1e-3 and at ε = 0.1, δ = 0.01, and which law is chosen."""
    for epsilon, delta, chosen, deviations in (
        (1.0, 1e-3, CountMechanism.LAPLACE, [1.4114, 1.7247, 2.5747]),
        (0.1, 0.01, CountMechanism.GAUSSIAN, [11.7752, 9.8767, 9.5418]),
    ):
        found = [calibrate_count(epsilon, delta, 1, law).scale * STANDARD_DEVIATION[law] for law in LAWS]
        assert found == pytest.approx(deviations, abs=5e-5)
        assert calibrate_count(epsilon, delta, 1).mechanism is chosen


def test_no_count_is_free_of_delta() -> None:
    """64 bits cannot give δ = 0: what the grid costs is charged although nobody asked for it."""
    noise = calibrate_count(1.0, 0.0, 4)
    assert 0 < noise.delta < 1e-15
    with pytest.raises(InvalidInput, match="delta"):
        calibrate_count(1e-9, 0.0, 1000)


def described(adjacency: Adjacency, elements_per_user: int) -> SetDescription:
    privacy = PrivacyParameters(1.0, 0.0, adjacency, elements_per_user=elements_per_user)
    own = parameters(64, 8, privacy)
    return SetDescription("s", HashParameters(), own, privacy, Normalization.NONE, "s", 0, 1, shared_seed=False)


@pytest.mark.parametrize("elements", [1, 7])
def test_one_user_moves_the_count_by_at_most_the_sensitivity(elements: int) -> None:
    """The count is of distinct digests: as many as one user has elements, however many bits each sets."""
    noise = count_noise(described(Adjacency.ADD_REMOVE, elements), CountPurchase(1.0, 1e-6))
    assert noise.sensitivity == elements


def test_a_public_size_is_not_sold() -> None:
    """Under replace-one a noisy count would be a pretence."""
    with pytest.raises(InvalidInput, match="size is public"):
        count_noise(described(Adjacency.REPLACE_ONE, 1), CountPurchase(1.0, 0.0))
