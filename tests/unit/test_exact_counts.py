"""The exact count: pure ε by construction, the law that is said, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from veilset.core.privacy.counts import RANDOM_INTEGERS, exact_count, exact_noise
from veilset.errors import InvalidInput


def threshold_of(epsilon: float, sensitivity: int) -> int:
    """The T that a draw compares with, found by feeding it integers: the least that ends a run at once."""
    noise = exact_count(epsilon, sensitivity)
    low, high = 0, RANDOM_INTEGERS - 1

    def ends(value: int) -> bool:
        drawn = iter([value, RANDOM_INTEGERS - 1, RANDOM_INTEGERS - 1, RANDOM_INTEGERS - 1])
        return exact_noise(noise, lambda _: next(drawn).to_bytes(8, "little")) == 0

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ends(middle) else (middle, high)
    return high


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.05, 1), (0.05, 7), (1.0, 1), (3.0, 2), (0.001, 1)])
def test_neighbouring_counts_differ_by_at_most_epsilon(epsilon: float, sensitivity: int) -> None:
    """The probability of k falls by the factor T/2^64 a step, so Δ steps cost -Δ·ln(T/2^64) <= ε, and hardly less."""
    ratio = Fraction(threshold_of(epsilon, sensitivity), RANDOM_INTEGERS)
    with localcontext() as context:
        context.prec = 60
        cost = -(Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln() * sensitivity
    assert Decimal(repr(epsilon)) * (1 - Decimal("1e-12")) < cost <= Decimal(repr(epsilon))


def test_noise_has_the_law_of_two_geometric_numbers() -> None:
    """20,000 draws at ε = 1: chances within 6 standard deviations, for k from -3 to 3, and no mean."""
    noise = exact_count(1.0, 1)
    drawn = Counter(exact_noise(noise, os.urandom) for _ in range(20_000))
    p = np.exp(-1.0)
    for k in range(-3, 4):
        expected = (1 - p) / (1 + p) * p ** abs(k)
        assert abs(drawn[k] / 20_000 - expected) < 6 * np.sqrt(expected / 20_000)
    assert abs(sum(k * times for k, times in drawn.items())) / 20_000 < 6 * np.sqrt(2 * p / (1 - p) ** 2 / 20_000)


def test_it_costs_no_delta_and_its_scale_is_that_of_the_law() -> None:
    noise = exact_count(0.05, 3)
    assert (noise.delta, noise.epsilon, noise.scale) == (0.0, 0.05, 60.0)


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.00005, 1), (0.05, 1000), (0.0, 1), (float("nan"), 1)])
def test_so_little_that_drawing_would_take_long_is_refused(epsilon: float, sensitivity: int) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        exact_count(epsilon, sensitivity)
