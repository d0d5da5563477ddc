"""An own list against a vector: the estimate, its range, and the exact coverage of the interval for short lists."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from harness.shapes import FilterParameters
from veilset.core.encodings.bloom.overlap import ListReading, estimate_overlap, overlap_test
from veilset.errors import InvalidInput

LONG = 10**9


@pytest.mark.parametrize("hashes", [1, 3])
@pytest.mark.parametrize("common", [0, 7, 200])
def test_the_estimate_is_right_where_the_counts_are_as_expected(hashes: int, common: int) -> None:
    flip, share, own = 0.125, 0.25, 200
    ones = hashes * (common * (1 - flip) + (own - common) * share)
    shape = FilterParameters(1 << 20, hashes)
    found = estimate_overlap(shape.bits, shape.hashes, flip, ListReading(own, int(ones), int(share * shape.bits)))
    assert found.unbiased == pytest.approx(common, abs=1)
    assert found.estimate == min(max(found.unbiased, 0), own)
    assert found.low <= common <= found.high
    assert (found.own_size, found.confidence, found.interval) == (own, 0.95, (found.low, found.high))


@pytest.mark.parametrize("flip", [1e-9, 0.001, 0.05, 0.2, 0.4])
@pytest.mark.parametrize("own", [5, 20, 100])
def test_short_lists_are_held_often_enough(own: int, flip: float) -> None:
    """No chance here: the probability of every count of ones, summed over those whose interval holds the truth.

    Where single counts matter the interval may hold it more often than asked for, but not less than 94%.
    """
    for fill in (1e-5, 0.01, 0.1, 0.4):
        share = flip + (1 - 2 * flip) * fill
        readings = [ListReading(own, ones, round(share * LONG)) for ones in range(own + 1)]
        tests = [overlap_test(LONG, 1, flip, reading, 0.95) for reading in readings]
        for common in {0, 1, own // 4, own // 2, own}:
            members = binom.pmf(np.arange(common + 1), common, 1 - flip)
            others = binom.pmf(np.arange(own - common + 1), own - common, share)
            held = sum(
                chance
                for chance, test in zip(np.convolve(members, others), tests, strict=True)
                if chance > 1e-12 and test.accepts(common)
            )
            assert held >= 0.94, f"{own} elements, flip {flip}, fill {fill}, {common} in common: {held:.4f}"


@given(
    bits=st.integers(8, 200),
    hashes=st.integers(1, 4),
    own=st.integers(0, 300),
    flip=st.one_of(st.floats(1e-15, 0.5), st.just(0.5)),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_any_reading_gives_an_interval_in_range(
    bits: int, hashes: int, own: int, flip: float, shares: tuple[float, float]
) -> None:
    """Also counts that no set can have led to, such as more ones than a full vector would show."""
    reading = ListReading(own, round(shares[0] * own * hashes), round(shares[1] * bits))
    found = estimate_overlap(bits, hashes, flip, reading)
    assert 0 <= found.low <= found.estimate <= found.high <= own
    assert math.isfinite(found.unbiased)
    assert found.low <= math.floor(found.estimate) <= math.ceil(found.estimate) <= found.high


@pytest.mark.parametrize(("flip", "vector_ones"), [(0.5, 500), (0.25, 750), (0.25, 1000)])
def test_a_vector_that_says_nothing_leaves_everything_possible(flip: float, vector_ones: int) -> None:
    """Pure noise, or as many ones as a full vector has."""
    found = estimate_overlap(1000, 1, flip, ListReading(40, 20, vector_ones))
    assert found.interval == (0, 40)


def test_more_confidence_is_wider() -> None:
    shape, reading = FilterParameters(10_000, 2), ListReading(500, 400, 2500)
    intervals = [
        estimate_overlap(shape.bits, shape.hashes, 0.1, reading, confidence) for confidence in (0.5, 0.9, 0.95, 0.999)
    ]
    assert all(a.low > b.low and a.high < b.high for a, b in pairwise(intervals))


def test_positions_that_elements_share_widen_the_interval() -> None:
    """The same list and counts on a vector where it fills every position several times over."""
    widths = []
    for bits in (2000, 200_000):
        found = estimate_overlap(bits, 1, 0.2, ListReading(8000, 5600, bits // 2))
        widths.append(found.high - found.low)
    assert widths[0] > 1.3 * widths[1]


@pytest.mark.parametrize(
    ("reading", "field"),
    [
        (ListReading(-1, 0, 0), "elements"),
        (ListReading(5, 11, 0), "ones"),
        (ListReading(5, -1, 0), "ones"),
        (ListReading(5, 5, 65), "vector_ones"),
    ],
)
def test_impossible_counts_are_refused(reading: ListReading, field: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field}"):
        estimate_overlap(64, 2, 0.1, reading)
