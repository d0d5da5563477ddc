"""Moments of sums over the bits of two noisy vectors, against direct sums over Poisson numbers of marks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import poisson

from veilset.core.encodings.bloom.joint_bits import Zeros, covariances, means_with_a_mark, sum_spread

MOST_MARKS = 22


def direct(
    bits: int, flips: tuple[float, float], loads: tuple[float, float, float], weights: tuple[float, float, float]
) -> tuple[float, float]:
    """Deviation and skewness of the sum of ψ by the definition in the module, term by term."""
    w, x, y = weights
    numbers = np.meshgrid(*(np.arange(MOST_MARKS),) * 3, indexing="ij")
    chance = np.prod([poisson.pmf(n, load) for n, load in zip(numbers, loads, strict=True)], axis=0)
    zeros = [(numbers[side] + numbers[2]) == 0 for side in (0, 1)]

    def moment(function: object, extra: int | None = None) -> float:
        """Mean of a function of (φ, marks) over marks and noise; extra: a class that has one mark more."""
        assert callable(function)
        shifted = [n + (i == extra) for i, n in enumerate(numbers)]
        a, b = ((shifted[side] + shifted[2]) == 0 for side in (0, 1))
        total = 0.0
        for flipped in itertools.product((0, 1), repeat=2):
            noise = math.prod(p if f else 1 - p for p, f in zip(flips, flipped, strict=True))
            read = [1 - (np.where(f, z, ~z) - p) / (1 - 2 * p) for p, f, z in zip(flips, flipped, (a, b), strict=True)]
            phi = w * read[0] * read[1] + x * read[0] + y * read[1]
            total += noise * float((chance * function(phi, shifted)).sum())
        return total

    assert [float((chance * z).sum()) for z in zeros] == pytest.approx([math.exp(-loads[s] - loads[2]) for s in (0, 1)])
    mean = moment(lambda phi, _: phi)
    slopes = [moment(lambda phi, _: phi, extra) - mean for extra in range(3)]

    def psi(phi: np.ndarray, marks: list[np.ndarray]) -> np.ndarray:
        return phi - mean - sum(d * (n - load) for d, n, load in zip(slopes, marks, loads, strict=True))

    variance = moment(lambda phi, marks: psi(phi, marks) ** 2)
    third = moment(lambda phi, marks: psi(phi, marks) ** 3)
    return math.sqrt(bits * variance), third / variance**1.5 / math.sqrt(bits)


@pytest.mark.parametrize("weights", [(0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (1.0, -0.7, -0.4), (0.3, 0.2, -1.1)])
@pytest.mark.parametrize("flips", [(0.27, 0.1), (1e-6, 0.01), (0.45, 0.3)])
@pytest.mark.parametrize("loads", [(0.4, 0.9, 0.3), (0.02, 0.01, 0.0), (0.0, 0.0, 1.5)])
def test_moments_against_direct_sums(
    weights: tuple[float, float, float], flips: tuple[float, float], loads: tuple[float, float, float]
) -> None:
    bits = 4096
    zeros = Zeros(math.exp(-loads[0] - loads[2]), math.exp(-loads[1] - loads[2]), math.exp(-sum(loads)))
    found = sum_spread(bits, flips, zeros, weights, float(bits))
    deviation, skewness = direct(bits, flips, loads, weights)
    assert found.deviation == pytest.approx(deviation, rel=1e-6)
    assert found.skewness == pytest.approx(skewness, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("load", [0.01, 0.5, 2.0])
def test_the_variance_of_one_vector_is_the_known_one(load: float) -> None:
    """Empty bins after a fixed number of throws, m·e^-λ·(1 - (1 + λ)·e^-λ), and the noise of unmixed bits."""
    bits, flip, empty = 1000, 0.2, math.exp(-load)
    expected = bits * (empty * (1 - (1 + load) * empty) + flip * (1 - flip) / (1 - 2 * flip) ** 2)
    found = sum_spread(bits, (flip, 0.4), Zeros(empty, 0.7, 0.7 * empty), (0.0, -1.0, 0.0), float(bits))
    assert found.deviation**2 == pytest.approx(expected)


def test_both_is_kept_between_independence_and_inclusion() -> None:
    weights, flips = (1.0, -0.5, -0.5), (0.1, 0.1)
    spreads = [sum_spread(100, flips, Zeros(0.5, 0.6, both), weights, 100.0) for both in (0.0, 0.3, 0.5, 0.9)]
    assert spreads[0] == spreads[1]
    assert spreads[2] == spreads[3]
    assert spreads[1] != spreads[2]


def test_a_mark_takes_the_zeros_it_hits() -> None:
    """Chances and tables go by (a, b) = (0, 0), (0, 1), (1, 0), (1, 1)."""
    found = means_with_a_mark((0.1, 0.2, 0.3, 0.4), (1.0, 2.0, 4.0, 8.0))
    assert found == pytest.approx((0.4 * 1 + 0.6 * 2, 0.3 * 1 + 0.7 * 4, 1.0))


@pytest.mark.parametrize("weights", [(0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (1.0, -0.7, -0.4), (0.3, 0.2, -1.1)])
@pytest.mark.parametrize("flips", [(0.27, 0.1), (1e-6, 0.01), (0.45, 0.3)])
@pytest.mark.parametrize("zeros", [Zeros(0.3, 0.5, 0.2), Zeros(0.1, 0.1, 0.1), Zeros(0.99, 0.04, 0.0396)])
def test_covariances_are_those_of_the_sums(
    weights: tuple[float, float, float], flips: tuple[float, float], zeros: Zeros
) -> None:
    matrix = np.array(covariances(4096, flips, zeros))
    variance = np.array(weights) @ matrix @ np.array(weights)
    assert variance == pytest.approx(sum_spread(4096, flips, zeros, weights, 1.0).deviation ** 2, rel=1e-9)
    assert matrix == pytest.approx(matrix.T)
