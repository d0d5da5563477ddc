"""Two releases from their joint counts: identities, real sets, extremes."""

from __future__ import annotations

import math
from dataclasses import astuple, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.shapes import FilterParameters
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom.comparison import JointCounts, PairedReleases, count_joint_bits
from veilset.core.encodings.bloom.vectors import positions, set_bits
from veilset.core.estimates.intervals import Estimate
from veilset.core.estimates.results import Comparison
from veilset.errors import InvalidInput

SURE = 1e-12  # a flip probability that never strikes


def vector(shape: FilterParameters, numbers: range) -> np.ndarray:
    """The raw vector of a set of numbers."""
    made = np.zeros(shape.vector_bytes, dtype=np.uint8)
    hashed = digests([b"%d" % number for number in numbers], shape.scheme, shape.seed)
    set_bits(made, positions(hashed, shape.bits, shape.hashes))
    return made


def compare(shape: FilterParameters, flips: tuple[float, float], counts: JointCounts) -> Comparison:
    return PairedReleases(shape.bits, shape.hashes, flips, counts, 0.95).compare()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (range(3000), range(1000, 5000)),
        (range(3000), range(3000, 6000)),
        (range(3000), range(1000)),
        (range(2000), range(2000)),
        (range(2000), range(0)),
    ],
)
@pytest.mark.parametrize("hashes", [1, 3])
def test_without_noise_the_truth_comes_out(left: range, right: range, hashes: int) -> None:
    """But for collisions, some ten elements here, which the intervals allow for."""
    shape = FilterParameters(1 << 18, hashes, seed=4)
    found = compare(shape, (SURE, SURE), count_joint_bits(vector(shape, left), vector(shape, right)))
    common = len(set(left) & set(right))
    union = len(left) + len(right) - common
    for estimate, truth in (
        (found.left, len(left)),
        (found.right, len(right)),
        (found.union, union),
        (found.intersection, common),
    ):
        assert estimate.estimate == pytest.approx(truth, abs=60)
        assert estimate.high - estimate.low < 240
    assert found.jaccard.estimate == pytest.approx(common / union, abs=0.03)


def test_joint_counts_are_those_of_the_bits() -> None:
    """Over several chunks, and a last byte of its own."""
    rng = np.random.default_rng(1)
    left, right = (rng.integers(0, 256, (2 << 20) + 17, dtype=np.uint8) for _ in range(2))
    a, b = np.unpackbits(left), np.unpackbits(right)
    assert count_joint_bits(left, right) == JointCounts(int(a.sum()), int(b.sum()), int((a & b).sum()))


@st.composite
def any_pair(draw: st.DrawFn) -> tuple[FilterParameters, tuple[float, float], JointCounts]:
    """Any counts that two vectors can have, likely or not."""
    bits = draw(st.integers(8, 5000))
    left, right = draw(st.integers(0, bits)), draw(st.integers(0, bits))
    both = draw(st.integers(max(0, left + right - bits), min(left, right)))
    flips = st.one_of(st.floats(1e-15, 0.5), st.just(0.5))
    shape = FilterParameters(bits, draw(st.integers(1, 8)))
    return shape, (draw(flips), draw(flips)), JointCounts(left, right, both)


@settings(deadline=None, max_examples=60)
@given(any_pair())
def test_any_counts_give_intervals_in_range(
    pair: tuple[FilterParameters, tuple[float, float], JointCounts],
) -> None:
    found = compare(*pair)
    for field in fields(found):
        estimate: Estimate = getattr(found, field.name)
        assert 0 <= estimate.low <= estimate.estimate <= estimate.high, field.name
        assert math.isfinite(estimate.estimate), field.name
    assert found.jaccard.high <= 1


@settings(deadline=None, max_examples=40)
@given(any_pair())
def test_no_upper_end_is_where_full_vectors_begin(
    pair: tuple[FilterParameters, tuple[float, float], JointCounts],
) -> None:
    """An interval ends before the number of elements that leaves half a zero bit, or nowhere: beyond it all look alike."""
    shape = pair[0]
    most = -math.log(0.5 / shape.bits) / (-shape.hashes * math.log1p(-1 / shape.bits))
    found = compare(*pair)
    for estimate in (found.left, found.right, found.union, found.intersection):
        assert estimate.high < most * (1 - 1e-9) or math.isinf(estimate.high)


@pytest.mark.parametrize("common", [0, 1000, 2000])
def test_saturated_vectors_have_no_upper_end(common: int) -> None:
    """2,000 elements throw 16 marks on each bit, and any other number beyond some 500 would look the same."""
    shape, sets = FilterParameters(1000, 8, seed=2), (range(2000), range(2000 - common, 4000 - common))
    raw = [np.unpackbits(vector(shape, numbers)) for numbers in sets]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left, right = (bits ^ (rng.random(1000) < 0.1) for bits in raw)
        counts = JointCounts(int(left.sum()), int(right.sum()), int((left & right).sum()))
        found = PairedReleases(shape.bits, shape.hashes, (0.1, 0.1), counts, 1 - 1e-9).compare()
        for estimate in (found.left, found.right, found.union):
            assert 0 < estimate.low < 2000
            assert math.isinf(estimate.high)
        assert found.intersection.interval == (0.0, math.inf)
        assert found.jaccard.low <= common / (4000 - common) <= found.jaccard.high


def test_one_saturated_vector_leaves_the_other_its_interval() -> None:
    """But of the intersection nothing is told."""
    found = compare(FilterParameters(1000, 8), (0.1, 0.1), JointCounts(900, 300, 270))
    assert (found.left.high, found.intersection.interval) == (math.inf, (0.0, math.inf))
    assert 0 < found.right.low < found.right.high < 100


def test_the_intersection_is_told_from_three_deviations_on() -> None:
    """Of the shares of zeros; from z on at a confidence that asks for more."""
    shape = FilterParameters(10_000, 1)
    deviation = math.sqrt(0.1 * 0.9 * 10_000)  # of the noisy ones, nearly; zeros add some
    for far, confidence, told in (
        (2.5, 0.95, False),
        (4.0, 0.95, True),
        (4.0, 0.9999999, False),
        (8.0, 0.9999999, True),
    ):
        ones = round(9000 - far * deviation)
        found = PairedReleases(
            shape.bits, shape.hashes, (0.1, 0.1), JointCounts(ones, 4000, 3600), confidence
        ).compare()
        assert math.isfinite(found.intersection.high) == told, far


@settings(deadline=None, max_examples=20)
@given(any_pair())
def test_sides_can_be_swapped(pair: tuple[FilterParameters, tuple[float, float], JointCounts]) -> None:
    shape, flips, counts = pair
    one = compare(shape, flips, counts)
    other = compare(shape, flips[::-1], JointCounts(counts.right, counts.left, counts.both))
    for a, b in (("left", "right"), ("right", "left"), ("union", "union"), ("intersection", "intersection")):
        assert astuple(getattr(one, a)) == pytest.approx(astuple(getattr(other, b)), rel=1e-6, abs=1e-6)


def test_sizes_union_and_intersection_add_up() -> None:
    found = compare(FilterParameters(10_000, 2), (0.2, 0.1), JointCounts(4000, 3000, 1500))
    assert found.left.estimate + found.right.estimate == pytest.approx(
        found.union.estimate + found.intersection.estimate
    )
    assert found.jaccard.estimate == pytest.approx(found.intersection.estimate / found.union.estimate)


def test_pure_noise_on_one_side_says_nothing_of_that_side() -> None:
    found = compare(FilterParameters(10_000, 1), (0.2, 0.5), JointCounts(4000, 5000, 2000))
    assert found.left.high < 10_000
    assert found.right.interval == found.intersection.interval == (0.0, math.inf)
    assert found.jaccard.interval == (0, 1)


@pytest.mark.parametrize(
    ("counts", "field"),
    [
        (JointCounts(65, 0, 0), "left"),
        (JointCounts(0, -1, 0), "right"),
        (JointCounts(5, 6, 6), "both"),
        (JointCounts(60, 60, 3), "both"),
    ],
)
def test_impossible_counts_are_refused(counts: JointCounts, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}"):
        compare(FilterParameters(64, 1), (0.1, 0.1), counts)


def test_parameters_out_of_range_are_refused() -> None:
    counts = JointCounts(5, 5, 1)
    for flips in ((0.0, 0.1), (0.1, 0.6), (float("nan"), 0.1)):
        with pytest.raises(InvalidInput, match=r"^flips"):
            compare(FilterParameters(64, 1), flips, counts)
    with pytest.raises(InvalidInput, match=r"^confidence"):
        PairedReleases(64, 1, (0.1, 0.1), counts, 1.5)
