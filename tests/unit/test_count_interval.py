"""The interval from a bought count, by what its argument rests on (`core.estimates.sizes`) and by simulation."""

from __future__ import annotations

import math
import os
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from harness.bare_headers import header
from veilset.core.estimates.joint_bits import Zeros, sum_spread
from veilset.core.estimates.sizes import count_reach, size_from_count
from veilset.core.params import FilterParameters
from veilset.core.privacy.noise_laws import STANDARD_DEVIATION, CountMechanism, two_sided_quantile
from veilset.core.release.header import NoisyCount

LAPLACE, LOGISTIC, GAUSSIAN = CountMechanism
LAWS = list(CountMechanism)
RUNS = 40_000
CONFIDENCES = (0.95, 0.99, 0.999)
FALSE_ALARM = 1e-8
"""Of one of the 27 checks, were the coverage just the nominal one; together below 3e-7 per run."""


def bought(mechanism: CountMechanism, scale: float, value: int = 0) -> NoisyCount:
    return NoisyCount(value, str(mechanism), scale, 1, 1.0, 1e-9)


def upper_tail(mechanism: CountMechanism, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(noise of scale 1 > x)."""
    if mechanism is LAPLACE:
        tail = np.exp(-np.abs(x)) / 2
        return np.where(x > 0, tail, 1 - tail)
    if mechanism is LOGISTIC:
        return np.exp(-np.logaddexp(0, x))
    return np.array([NormalDist().cdf(-value) for value in x])


@pytest.mark.parametrize("mechanism", LAWS)
def test_quantiles_by_definition(mechanism: CountMechanism) -> None:
    for confidence in (1e-9, 0.3, *CONFIDENCES, 1 - 1e-12):
        reached = two_sided_quantile(mechanism, confidence)
        assert 2 * upper_tail(mechanism, np.array([reached]))[0] == pytest.approx(1 - confidence, rel=1e-6)


@pytest.mark.parametrize("mechanism", [LAPLACE, LOGISTIC])
def test_noise_and_collisions_together_seldom_pass_the_root(mechanism: CountMechanism) -> None:
    """P(|X + σZ| > r) <= α for r = √((zσ)² + max(q, zs)²), by the trapezoidal rule over Z."""
    for confidence in (0.01, 0.3, 0.5, 0.7, 0.85, *np.arange(0.9, 0.99, 0.01), 0.99, 0.999, 0.99999, 1 - 1e-9):
        missed, z = 1 - confidence, -NormalDist().inv_cdf((1 - confidence) / 2)
        widest = max(two_sided_quantile(mechanism, confidence), z * STANDARD_DEVIATION[mechanism])
        for sigma in (0.0, *np.geomspace(0.03, 30, 25)):
            step = min(0.02, 0.04 / max(sigma, 1))
            points = np.arange(-10, 10 + step / 2, step)
            weights = step / math.sqrt(2 * math.pi) * np.exp(-points * points / 2)
            tails = upper_tail(mechanism, math.hypot(z * sigma, widest) - sigma * points)
            assert 2 * float(weights @ tails) <= missed * (1 + 1e-6), (confidence, sigma)


def test_the_number_of_ones_is_no_more_skew_than_was_reckoned_with() -> None:
    """Its third central moment lies within ±σ², at any load; and nearly reaches that."""
    ratios = []
    for load in np.geomspace(1e-6, 12, 100):
        share = math.exp(-load)
        spread = sum_spread(10**6, (1e-15, 1e-15), Zeros(share, 1.0, share), (0.0, -1.0, 0.0), 1e6)
        ratios.append(spread.skewness * spread.deviation)
    assert 0.99 < max(map(abs, ratios)) <= 1


@pytest.mark.parametrize(
    ("mechanism", "scale", "bits", "size"),
    [
        pytest.param(LAPLACE, 10.0, 10**6, 40, id="nothing but Laplace noise"),
        pytest.param(LAPLACE, 1.0, 10**6, 40, id="rounding counts"),
        pytest.param(LOGISTIC, 4.3, 10**6, 40, id="nothing but logistic noise"),
        pytest.param(LOGISTIC, 4.0, 256, 150, id="logistic noise and collisions"),
        pytest.param(GAUSSIAN, 4.0, 256, 150, id="normal noise and collisions"),
        pytest.param(LAPLACE, 2.0, 64, 150, id="nearly full"),
        pytest.param(LAPLACE, 20.0, 64, 100, id="more noise than bits"),
        pytest.param(LAPLACE, 1 / 16, 1000, 45, id="no noise, a collision or two"),
        pytest.param(LOGISTIC, 3.0, 1000, 0, id="empty"),
    ],
)
def test_the_interval_holds_the_size_at_any_confidence(
    mechanism: CountMechanism, scale: float, bits: int, size: int
) -> None:
    """At least as often as it says."""
    seed = int.from_bytes(os.urandom(4))
    rng = np.random.default_rng(seed)
    marks = np.sort(rng.integers(0, bits, (RUNS, size), dtype=np.int32), axis=1)
    ones = (np.diff(marks, axis=1) != 0).sum(axis=1) + min(size, 1)
    draw = {LAPLACE: rng.laplace, LOGISTIC: rng.logistic, GAUSSIAN: rng.normal}[mechanism]
    values, times = np.unique(ones + np.rint(draw(0.0, scale, RUNS)).astype(int), return_counts=True)
    shape = FilterParameters(bits, 1)
    for confidence in CONFIDENCES:
        found = [
            size_from_count(header(shape, 1 << 62, bought(mechanism, scale, value)), confidence) for value in values
        ]
        held = sum(int(time) for one, time in zip(found, times, strict=True) if one.low <= size <= one.high)
        print(f"{confidence}: held in {held / RUNS:.3%}")
        assert held >= binom.ppf(FALSE_ALARM, RUNS, confidence), (confidence, held / RUNS, seed)


@pytest.mark.parametrize("mechanism", LAWS)
def test_it_is_not_much_wider_than_it_has_to_be(mechanism: CountMechanism) -> None:
    """Within a hundredth of the noise's quantile where nothing collides, rounding aside."""
    for confidence in CONFIDENCES:
        least = 100 * two_sided_quantile(mechanism, confidence)
        assert least + 0.5 <= count_reach(bought(mechanism, 100.0), 0.0, confidence) <= 1.01 * least + 0.5


def test_any_confidence_gives_an_interval() -> None:
    for mechanism in LAWS:
        count = header(FilterParameters(1000, 1), 1 << 62, bought(mechanism, 2.0, 30))
        reaches = [size_from_count(count, confidence).low for confidence in (1e-300, 1e-9, 0.5, 0.99, 1 - 2**-53)]
        assert reaches == sorted(reaches, reverse=True)
        assert reaches[0] < 31
