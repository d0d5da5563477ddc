"""What holds for every setting: order of the rules, promises kept, monotone answers, sound distributions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from hypothesis import given, settings
from hypothesis import strategies as st

from veilset.core.encodings.bloom.calibration import CalibratedResponse, calibrate, reached_delta
from veilset.core.encodings.bloom.occupancy import (
    MAX_DISTRIBUTED_BITS,
    changed_bits_distribution,
    dominating_distribution,
    maximum_changed_bits,
)
from veilset.core.params import Adjacency, Calibration, PrivacyParameters

# The exact rule is searched to a relative 3e-15, so its answers are monotone to within that.
SEARCHED = 1 - 1e-14


def spread(low: float, high: float) -> st.SearchStrategy[int]:
    """Integers from low to high, evenly spread over the orders of magnitude."""
    return st.floats(math.log(low), math.log(high)).map(lambda x: max(int(low), min(int(high), round(math.exp(x)))))


bit_counts = spread(8, 2**40)
min_sizes = spread(1, 10**12)
epsilons = st.floats(math.log(1e-3), math.log(64)).map(lambda x: min(64.0, math.exp(x)))
deltas = st.one_of(st.just(0.0), st.floats(-15, -1).map(lambda x: min(0.1, 10**x)))
adjacencies = st.sampled_from(list(Adjacency))


@st.composite
def users(draw: st.DrawFn) -> tuple[int, Adjacency, int]:
    """Hashes, relation and elements per user whose distribution is computed."""
    hashes = draw(st.integers(1, 32))
    adjacency = draw(adjacencies)
    most = MAX_DISTRIBUTED_BITS // maximum_changed_bits(hashes, adjacency, 1)
    return hashes, adjacency, draw(st.one_of(st.just(1), st.integers(1, min(most, 4))))


def response(
    bits: int, user: tuple[int, Adjacency, int], rule: Calibration, epsilon: float, delta: float, min_size: int
) -> CalibratedResponse:
    hashes, adjacency, elements = user
    return calibrate(bits, hashes, PrivacyParameters(epsilon, delta, adjacency, rule, elements, min_size))


@settings(max_examples=300, deadline=None)
@given(bit_counts, users(), min_sizes)
def test_distribution_is_sound(bits: int, user: tuple[int, Adjacency, int], min_size: int) -> None:
    """W_max + 1 finite probabilities in [0, 1] that sum to 1 within 1e-12, never below it."""
    hashes, adjacency, elements = user
    distribution = changed_bits_distribution(bits, hashes, adjacency, elements, min_size)
    assert len(distribution) == maximum_changed_bits(hashes, adjacency, elements) + 1
    assert all(p.is_finite() and 0 <= p <= 1 for p in distribution)
    with localcontext(prec=100):
        assert 0 <= sum(distribution) - 1 <= Decimal("1e-12")


@settings(max_examples=100, deadline=None)
@given(bit_counts, users(), min_sizes, min_sizes)
def test_a_larger_promise_changes_fewer_bits(bits: int, user: tuple[int, Adjacency, int], one: int, two: int) -> None:
    """P(W > w) never grows with min_size: a lower bound of the size is safe."""
    hashes, adjacency, elements = user
    small = changed_bits_distribution(bits, hashes, adjacency, elements, min(one, two))
    large = changed_bits_distribution(bits, hashes, adjacency, elements, max(one, two))
    with localcontext(prec=100):
        for w in range(len(small)):
            assert sum(large[w:]) <= sum(small[w:]) + Decimal("1e-47")


@settings(max_examples=200, deadline=None)
@given(bit_counts, users(), epsilons, deltas, min_sizes)
def test_rules_are_ordered_and_kept(
    bits: int, user: tuple[int, Adjacency, int], epsilon: float, delta: float, min_size: int
) -> None:
    """ε0 of exact >= w-quantile >= worst-case, and the δ each reaches is at most the δ asked."""
    hashes, adjacency, elements = user
    exact, quantile, worst = (
        response(bits, user, rule, epsilon, delta, min_size)
        for rule in (Calibration.EXACT, Calibration.W_QUANTILE, Calibration.WORST_CASE)
    )
    assert 64 >= exact.epsilon0 >= quantile.epsilon0 >= worst.epsilon0 > 0
    assert 1 <= exact.threshold <= quantile.threshold <= worst.threshold <= 1 << 63
    assert exact.changed_bits == quantile.changed_bits <= worst.changed_bits
    distribution = changed_bits_distribution(bits, hashes, adjacency, elements, min_size)
    assert reached_delta(distribution, epsilon, exact.epsilon0) <= delta
    assert reached_delta(distribution, epsilon, quantile.epsilon0) <= delta
    assert reached_delta(distribution, epsilon, worst.epsilon0) == 0
    for calibrated in (exact, quantile, worst):
        with localcontext(prec=60):
            effective = (Decimal(2**64 - calibrated.threshold) / calibrated.threshold).ln()
        assert effective <= Decimal(calibrated.epsilon0)


@settings(max_examples=60, deadline=None)
@given(bit_counts, users(), epsilons, deltas, min_sizes, epsilons, deltas, min_sizes)
def test_a_looser_promise_never_needs_more_noise(
    bits: int,
    user: tuple[int, Adjacency, int],
    epsilon: float,
    delta: float,
    min_size: int,
    other_epsilon: float,
    other_delta: float,
    other_min_size: int,
) -> None:
    """ε0 is monotone in ε, in δ and in min_size, under every rule."""
    for rule in Calibration:
        base = response(bits, user, rule, epsilon, delta, min_size).epsilon0
        for changed, is_looser in (
            (response(bits, user, rule, other_epsilon, delta, min_size), other_epsilon >= epsilon),
            (response(bits, user, rule, epsilon, other_delta, min_size), other_delta >= delta),
            (response(bits, user, rule, epsilon, delta, other_min_size), other_min_size >= min_size),
        ):
            low, high = (base, changed.epsilon0) if is_looser else (changed.epsilon0, base)
            assert high >= low * SEARCHED


@settings(max_examples=60, deadline=None)
@given(bit_counts, users(), epsilons, deltas, min_sizes)
def test_exact_leaves_nothing_unused(
    bits: int, user: tuple[int, Adjacency, int], epsilon: float, delta: float, min_size: int
) -> None:
    """A part in 10^9 more ε0 than the exact rule gives would break the promise, below the cap at 64."""
    hashes, adjacency, elements = user
    more = response(bits, user, Calibration.EXACT, epsilon, delta, min_size).epsilon0 * (1 + 1e-9)
    distribution = dominating_distribution(bits, hashes, adjacency, elements, min_size)
    assert more > 64 or reached_delta(distribution, epsilon, more) > delta


@given(bit_counts, st.integers(1, 32), st.integers(1, 1000), st.integers(1, 32 * 256).map(lambda parts: parts / 256))
def test_worst_case_replacing_is_removing_and_adding(bits: int, hashes: int, elements: int, epsilon: float) -> None:
    """In the worst case ε under add-remove is exactly 2ε under replace-one: the same noise.

    Of ε that floats name exactly; of others the decimals of ε and 2ε are not each other's double."""
    one_way = response(bits, (hashes, Adjacency.ADD_REMOVE, elements), Calibration.WORST_CASE, epsilon, 0.0, 1)
    both_ways = response(bits, (hashes, Adjacency.REPLACE_ONE, elements), Calibration.WORST_CASE, 2 * epsilon, 0.0, 1)
    assert one_way.threshold == both_ways.threshold


@settings(max_examples=60, deadline=None)
@given(bit_counts, st.integers(1, 32), min_sizes, epsilons, st.floats(0.001, 8))
def test_replacing_costs_at_most_removing_and_adding(
    bits: int, hashes: int, min_size: int, epsilon: float, epsilon0: float
) -> None:
    """Group privacy: what is (ε, δ) for add-remove is (2ε, 2δ) for replace-one, at the same noise."""
    one_way = changed_bits_distribution(bits, hashes, Adjacency.ADD_REMOVE, 1, min_size)
    both_ways = changed_bits_distribution(bits, hashes, Adjacency.REPLACE_ONE, 1, min_size)
    allowed = 2 * reached_delta(one_way, epsilon, epsilon0)
    assert reached_delta(both_ways, 2 * epsilon, epsilon0) <= allowed * (1 + 1e-12) + 1e-40
