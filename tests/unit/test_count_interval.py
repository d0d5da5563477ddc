"""The interval from a bought count, by what its argument rests on (`core.estimates.releases`) and by simulation."""

from __future__ import annotations

import os
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from harness.bare_headers import header
from harness.shapes import FilterParameters
from veilset.core.estimates.releases import size_from_count
from veilset.core.privacy.counts import CountMechanism, two_sided_quantile
from veilset.core.release.header import NoisyCount

LAPLACE, LOGISTIC, GAUSSIAN = CountMechanism
LAWS = list(CountMechanism)
RUNS = 40_000
SHAPE = FilterParameters(1000, 1)
CONFIDENCES = (0.95, 0.99, 0.999)
FALSE_ALARM = 1e-8
"""Of one of the 18 checks, were the coverage just the nominal one; together below 3e-7 per run."""


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


@pytest.mark.parametrize(
    ("mechanism", "scale", "size"),
    [
        (LAPLACE, 10.0, 40),
        (LAPLACE, 1.0, 40),
        (LOGISTIC, 4.3, 40),
        (GAUSSIAN, 4.0, 150),
        (LAPLACE, 1 / 16, 45),
        (LOGISTIC, 3.0, 0),
    ],
)
def test_the_interval_holds_the_size_at_any_confidence(mechanism: CountMechanism, scale: float, size: int) -> None:
    """At least as often as it says."""
    seed = int.from_bytes(os.urandom(4))
    rng = np.random.default_rng(seed)
    draw = {LAPLACE: rng.laplace, LOGISTIC: rng.logistic, GAUSSIAN: rng.normal}[mechanism]
    values, times = np.unique(size + np.rint(draw(0.0, scale, RUNS)).astype(int), return_counts=True)
    for confidence in CONFIDENCES:
        found = [
            size_from_count(header(SHAPE, 1 << 62, bought(mechanism, scale, value)), confidence) for value in values
        ]
        held = sum(int(time) for one, time in zip(found, times, strict=True) if one.low <= size <= one.high)
        print(f"{confidence}: held in {held / RUNS:.3%}")
        assert held >= binom.ppf(FALSE_ALARM, RUNS, confidence), (confidence, held / RUNS, seed)


@pytest.mark.parametrize("mechanism", LAWS)
def test_it_is_not_wider_than_it_has_to_be(mechanism: CountMechanism) -> None:
    """The noise's quantile, and half an element for rounding."""
    for confidence in CONFIDENCES:
        least = 100 * two_sided_quantile(mechanism, confidence)
        found = size_from_count(header(SHAPE, 1 << 62, bought(mechanism, 100.0, 10_000)), confidence)
        assert (found.low, found.high) == pytest.approx((10_000 - least - 0.5, 10_000 + least + 0.5))


def test_any_confidence_gives_an_interval() -> None:
    for mechanism in LAWS:
        count = header(SHAPE, 1 << 62, bought(mechanism, 2.0, 30))
        reaches = [size_from_count(count, confidence).low for confidence in (1e-300, 1e-9, 0.5, 0.99, 1 - 2**-53)]
        assert reaches == sorted(reaches, reverse=True)
        assert reaches[0] < 31
