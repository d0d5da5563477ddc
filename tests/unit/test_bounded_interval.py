"""Intervals for a bounded quantity: Feldman and Cousins' own table, the coverage of the construction, its geometry."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, pearson3

from veilset.core.estimates.intervals import (
    BoundedTest,
    Spread,
    acceptance_level,
    confidence_text,
    half_step,
    without_skewness,
)
from veilset.errors import InvalidInput

UNIT = 1e6  # counts per standard deviation, so that single counts do not matter
ROOMS = (0.0, 1e-12, 1e-6, 0.001, 0.1, 0.5, 1.0, 1.5, 1.9, 2.0, 3.0, 1e6)
confidences = st.sampled_from([0.8, 0.9, 0.95, 0.99])


def bounded_test(observed: float, confidence: float, high: float = 50.0, skewness: float = 0.0) -> BoundedTest:
    """A quantity in [0, high] that is observed with unit noise."""
    return BoundedTest(
        observed * UNIT, lambda value: value * UNIT, lambda _: Spread(UNIT, skewness), 0.0, high, confidence
    )


@pytest.mark.parametrize(
    ("observed", "by_confidence"),
    [
        (-3.0, {0.6827: (0.0, 0.04), 0.9: (0.0, 0.26), 0.95: (0.0, 0.42), 0.99: (0.0, 0.80)}),
        (-1.0, {0.6827: (0.0, 0.27), 0.9: (0.0, 0.81), 0.95: (0.0, 1.10), 0.99: (0.0, 1.68)}),
        (0.0, {0.6827: (0.0, 1.00), 0.9: (0.0, 1.64), 0.95: (0.0, 1.96), 0.99: (0.0, 2.58)}),
        (1.0, {0.6827: (0.24, 2.00), 0.9: (0.0, 2.64), 0.95: (0.0, 2.96), 0.99: (0.0, 3.58)}),
        (2.0, {0.6827: (1.00, 3.00), 0.9: (0.58, 3.64), 0.95: (0.35, 3.96), 0.99: (0.0, 4.58)}),
        (3.0, {0.6827: (2.00, 4.00), 0.9: (1.37, 4.64), 0.95: (1.14, 4.96), 0.99: (0.67, 5.58)}),
    ],
)
def test_the_published_table(observed: float, by_confidence: dict[float, tuple[float, float]]) -> None:
    """Table X of Feldman and Cousins: a Gaussian mean that is not negative."""
    for confidence, expected in by_confidence.items():
        found = bounded_test(observed, confidence).estimate(observed)
        assert found.interval == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_every_acceptance_region_has_the_confidence(confidence: float) -> None:
    """The region's ends, found again from the distance's definition, hold exactly that much of the normal law."""
    for below, above in itertools.product(ROOMS, repeat=2):
        level = acceptance_level(below, above, confidence)
        up, down = (
            math.inf if room == 0 else min(math.sqrt(2 * level), room) + max(0.0, level - room * room / 2) / room
            for room in (above, below)
        )
        if max(below, above) < 1e-9:
            assert min(up, down) > 1e6, "nothing to tell apart, so everything is accepted"
        else:
            assert norm.cdf(up) - norm.cdf(-down) == pytest.approx(confidence, abs=2e-8)


@given(st.floats(-20.0, 30.0), st.floats(0.01, 20.0), confidences, st.floats(-2.0, 2.0))
def test_an_interval_is_what_is_accepted(observed: float, high: float, confidence: float, skewness: float) -> None:
    """It is never empty, lies within the bounds, holds the best value, and ends where acceptance ends."""
    test = bounded_test(observed, confidence, high, skewness)
    found = test.estimate(observed)
    assert 0.0 <= found.low <= found.estimate <= found.high <= high
    assert found.estimate == min(max(observed, 0.0), high)
    for share in (0.001, 0.5, 0.999):
        assert test.accepts(found.low + share * (found.high - found.low))
    if found.low > 1e-6:
        assert not test.accepts(found.low - 1e-6)
    if found.high < high - 1e-6:
        assert not test.accepts(found.high + 1e-6)


@pytest.mark.parametrize("skewness", [-0.9, -0.3, -1e-5, 0.0, 1e-5, 0.3, 0.9])
def test_skewness_is_removed(skewness: float) -> None:
    """Tail probabilities of a gamma law of that skewness, within 8% of themselves from 1% to 99%."""
    for tail in (0.01, 0.025, 0.05, 0.5, 0.95, 0.975, 0.99):
        value = float(pearson3.ppf(tail, skewness)) if skewness else float(norm.ppf(tail))
        z = without_skewness(value, skewness)
        assert norm.cdf(z) == pytest.approx(tail, rel=0.08)
        assert norm.sf(z) == pytest.approx(1 - tail, rel=0.08)


def test_the_continuity_correction_fades() -> None:
    assert [half_step(deviation) for deviation in (0.0, 3.0, 4.5, 6.0, 1e9)] == [0.5, 0.5, 0.25, 0.0, 0.0]


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan, True, "0.95"])
def test_a_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(InvalidInput, match="confidence"):
        bounded_test(0.0, confidence)


@pytest.mark.parametrize(
    ("confidence", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.999999999, "99.9999999%"), (0.29, "29%")]
)
def test_a_confidence_is_not_rounded_to_certainty(confidence: float, text: str) -> None:
    assert confidence_text(confidence) == text
