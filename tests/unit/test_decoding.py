"""Decoder: scores, thresholds by every rule, decisions, posteriors and coinciding positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.core.encodings.bloom.law import binomial_tails, reading_law, score_table
from veilset.core.encodings.bloom.vectors import count_ones_per_element
from veilset.core.encodings.decoder import Decoder, Rule, make_decoder
from veilset.errors import InvalidInput, PoorUtility

flips = st.floats(2.0**-64, 0.5)
fractions = st.floats(0.0, 1.0)
hash_counts = st.integers(1, 32)


def read(ones: NDArray[np.int64], distinct: NDArray[np.int64], hashes: int) -> NDArray[np.int64]:
    """The reading of so many ones at so many distinct positions."""
    return distinct * (hashes + 1) + ones


def least_ones(decoder: Decoder, distinct: int, hashes: int) -> int:
    """How many ones an element of so many distinct positions needs; distinct + 1 for never."""
    accepted = decoder.accepts[distinct * (hashes + 1) :][: distinct + 1]
    assert (np.diff(accepted.astype(int)) >= 0).all()
    return distinct + 1 - int(accepted.sum())


def every_outcome(hashes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All (ones, distinct) with 0 <= ones <= distinct <= hashes, distinct >= 1."""
    pairs = [(ones, distinct) for distinct in range(1, hashes + 1) for ones in range(distinct + 1)]
    columns = np.array(pairs).T
    return columns[0], columns[1]


def test_score_is_the_log_likelihood_ratio() -> None:
    """t·ln(a/p0) + (d-t)·ln((1-a)/(1-p0)) for every (d, t), the chances of all t ones compared directly."""
    table = score_table(4, 0.2, 0.35)
    for distinct in range(5):
        for ones in range(distinct + 1):
            member = 0.8**ones * 0.2 ** (distinct - ones)
            non_member = 0.35**ones * 0.65 ** (distinct - ones)
            assert table[distinct, ones] == pytest.approx(math.log(member / non_member), abs=1e-13)


@given(hash_counts, flips, fractions)
def test_scores_are_finite_and_grow_with_the_ones(hashes: int, flip: float, fraction: float) -> None:
    """No NaN or infinity at any p0, 0 and 1 included; never falling in t."""
    table = score_table(hashes, flip, fraction)
    assert np.isfinite(table).all()
    for distinct in range(1, hashes + 1):
        assert (np.diff(table[distinct, : distinct + 1]) >= 0.0).all()


@given(hash_counts, flips, fractions)
def test_a_vector_as_full_as_members_says_nothing(hashes: int, flip: float, excess: float) -> None:
    """At p0 >= a every score is 0 and the default rule accepts nobody."""
    fraction = (1.0 - flip) + flip * excess
    assert not score_table(hashes, flip, fraction).any()
    decoder = make_decoder(reading_law(10**6, hashes, flip, fraction))
    assert not decoder.decide(read(*every_outcome(hashes), hashes)).any()
    assert decoder.true_positive_rate == decoder.false_positive_rate == 0.0


@given(hash_counts, flips, fractions)
def test_best_rule_has_the_largest_advantage_for_every_d(hashes: int, flip: float, share: float) -> None:
    """No other threshold beats it, and it cuts the score at 0."""
    fraction = flip + share * (1.0 - 2.0 * flip)
    decoder = make_decoder(reading_law(10**6, hashes, flip, fraction))
    for distinct in range(1, hashes + 1):
        gaps = binomial_tails(distinct, 1.0 - flip) - binomial_tails(distinct, fraction)
        assert gaps[least_ones(decoder, distinct, hashes)] >= gaps.max() - 1e-12
    ones, distinct_counts = every_outcome(hashes)
    positive = decoder.scores(read(ones, distinct_counts, hashes)) > 0.0
    assert (decoder.decide(read(ones, distinct_counts, hashes)) == positive).all()


@given(hash_counts, flips, fractions)
def test_all_ones_rule_asks_for_every_distinct_position(hashes: int, flip: float, fraction: float) -> None:
    """t = d, whatever d; the rates are a^k and p0^k where positions hardly ever coincide."""
    decoder = make_decoder(reading_law(2**40, hashes, flip, fraction), rule=Rule.ALL_ONES)
    ones, distinct = every_outcome(hashes)
    assert (decoder.decide(read(ones, distinct, hashes)) == (ones == distinct)).all()
    assert least_ones(decoder, hashes, hashes) == hashes
    assert decoder.true_positive_rate == pytest.approx((1.0 - flip) ** hashes, rel=1e-6)
    assert decoder.false_positive_rate == pytest.approx(fraction**hashes, rel=1e-6, abs=1e-9)


@given(hash_counts, st.floats(1e-6, 0.49), st.floats(0.0, 0.99), st.floats(1e-6, 0.999))
def test_largest_false_positive_rate_holds_for_every_d(hashes: int, flip: float, share: float, limit: float) -> None:
    """FPR <= limit for every number of distinct positions, and one less would break it; or the refusal is right."""
    fraction = flip + share * (1.0 - 2.0 * flip)
    if binomial_tails(hashes, fraction)[hashes] > limit:
        with pytest.raises(PoorUtility, match="smallest possible"):
            make_decoder(reading_law(10**6, hashes, flip, fraction), max_false_positive_rate=limit)
        return
    decoder = make_decoder(reading_law(10**6, hashes, flip, fraction), max_false_positive_rate=limit)
    assert decoder.false_positive_rate <= limit + 1e-15
    for distinct in range(1, hashes + 1):
        tails = binomial_tails(distinct, fraction)
        threshold = least_ones(decoder, distinct, hashes)
        assert tails[threshold] <= limit
        assert threshold == 0 or tails[threshold - 1] > limit * (1.0 - 1e-9)


@given(hash_counts, st.floats(1e-6, 0.49), st.floats(0.0, 0.99), st.floats(1e-3, 0.999))
def test_smallest_true_positive_rate_holds_for_every_d(hashes: int, flip: float, share: float, limit: float) -> None:
    """TPR >= limit for every number of distinct positions, and one more would break it; or the refusal is right."""
    fraction = flip + share * (1.0 - 2.0 * flip)
    if binomial_tails(hashes, 1.0 - flip)[1] < limit:
        with pytest.raises(PoorUtility, match="largest possible"):
            make_decoder(reading_law(10**6, hashes, flip, fraction), min_true_positive_rate=limit)
        return
    decoder = make_decoder(reading_law(10**6, hashes, flip, fraction), min_true_positive_rate=limit)
    assert decoder.true_positive_rate >= limit - 1e-15
    for distinct in range(1, hashes + 1):
        tails = binomial_tails(distinct, 1.0 - flip)
        threshold = least_ones(decoder, distinct, hashes)
        assert tails[threshold] >= limit
        assert tails[threshold + 1] < limit


def test_a_limit_out_of_reach_is_refused_with_the_best_possible() -> None:
    """The smallest FPR is that of the strictest test, the largest TPR that of the mildest."""
    with pytest.raises(PoorUtility, match=r"smallest possible is 0\.05487") as caught:
        make_decoder(reading_law(10**6, 3, 0.3, 0.3 + 0.2 * 0.4), max_false_positive_rate=0.02)
    assert float(caught.value.details["smallest_false_positive_rate"]) == pytest.approx(0.38**3, rel=1e-4)
    with pytest.raises(PoorUtility, match=r"largest possible is 0\.91") as caught:
        make_decoder(reading_law(10**6, 2, 0.3, 0.4), min_true_positive_rate=0.99)
    assert float(caught.value.details["largest_true_positive_rate"]) == pytest.approx(0.91, rel=1e-5)


def test_rates_average_over_coinciding_positions() -> None:
    """m = 8, k = 2: one element in eight has a single position, and both kinds are weighed."""
    decoder = make_decoder(reading_law(8, 2, 0.25, 0.4), rule=Rule.ALL_ONES)
    assert decoder.true_positive_rate == pytest.approx(0.875 * 0.75**2 + 0.125 * 0.75, abs=1e-14)
    assert decoder.false_positive_rate == pytest.approx(0.875 * 0.4**2 + 0.125 * 0.4, abs=1e-14)
    assert decoder.advantage == pytest.approx(decoder.true_positive_rate - decoder.false_positive_rate)


def test_more_hashes_than_bits() -> None:
    """A limit holds for the most distinct positions that there can be."""
    law = reading_law(8, 4, 0.1, 0.3)
    assert make_decoder(law, max_false_positive_rate=0.5).false_positive_rate <= 0.5
    assert law.members.sum() == pytest.approx(1.0)


@given(st.floats(0.0, 1.0), hash_counts, flips, fractions)
def test_posterior_is_bayes(prior: float, hashes: int, flip: float, fraction: float) -> None:
    """Odds times likelihood ratio, in [0, 1], never NaN; certainty stays certainty."""
    decoder = make_decoder(reading_law(10**6, hashes, flip, fraction))
    ones, distinct = every_outcome(hashes)
    posterior = decoder.posteriors(read(ones, distinct, hashes), prior)
    assert ((posterior >= 0.0) & (posterior <= 1.0)).all()
    if prior in (0.0, 1.0):
        assert (posterior == prior).all()
    elif 1e-6 < prior < 1.0 - 1e-6:
        moderate = np.abs(decoder.scores(read(ones, distinct, hashes))) < 20.0
        ratio = np.exp(decoder.scores(read(ones, distinct, hashes))[moderate])
        expected = prior * ratio / (prior * ratio + 1.0 - prior)
        assert posterior[moderate] == pytest.approx(expected, rel=1e-9)


def test_one_prior_for_each_element() -> None:
    """Priors broadcast against elements."""
    decoder = make_decoder(reading_law(10**6, 1, 0.25, 0.5))
    assert decoder.posteriors([3, 3], [0.5, 0.0]) == pytest.approx([0.6, 0.0])


def test_coinciding_positions_count_once() -> None:
    """Ones among distinct positions only, in rows with and without repeats."""
    positions = np.array([[5, 9, 7], [3, 3, 1], [2, 2, 2], [4, 6, 4]], dtype=np.uint64)
    readings = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    ones, distinct = count_ones_per_element(positions, readings)
    assert ones.tolist() == [2, 1, 1, 1]
    assert distinct.tolist() == [3, 2, 1, 2]


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), max_size=20), st.integers(0, 63))
def test_counting_agrees_with_sets(rows: list[list[int]], vector: int) -> None:
    """Against plain Python sets, for any rows of positions and any vector of six bits."""
    positions = np.array(rows, dtype=np.uint64).reshape(-1, 4)
    readings = np.array([[bool(vector >> p & 1) for p in row] for row in rows], dtype=bool).reshape(-1, 4)
    ones, distinct = count_ones_per_element(positions, readings)
    assert ones.tolist() == [sum(vector >> p & 1 for p in set(row)) for row in rows]
    assert distinct.tolist() == [len(set(row)) for row in rows]


@pytest.mark.parametrize(
    "change",
    [
        {"flip_probability": 0.0},
        {"flip_probability": 0.6},
        {"flip_probability": math.nan},
        {"ones_fraction": -0.1},
        {"ones_fraction": math.nan},
        {"max_false_positive_rate": 0.0},
        {"min_true_positive_rate": 1.0},
        {"max_false_positive_rate": math.nan},
        {"max_false_positive_rate": 0.5, "min_true_positive_rate": 0.5},
        {"max_false_positive_rate": 0.5, "rule": Rule.ALL_ONES},
    ],
)
def test_wrong_values_are_refused(change: dict[str, float]) -> None:
    """Out of range, NaN, or contradicting each other."""
    law = {"flip_probability": 0.2, "ones_fraction": 0.5} | change
    options = {name: law.pop(name) for name in change if name not in ("flip_probability", "ones_fraction")}
    with pytest.raises(InvalidInput):
        make_decoder(reading_law(64, 2, **law), **options)  # type: ignore[arg-type]


def test_priors_out_of_range_are_refused() -> None:
    """NaN too."""
    decoder = make_decoder(reading_law(64, 4, 0.2, 0.5))
    for prior in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match="prior"):
            decoder.posteriors([21], prior)


def test_shapes_must_agree() -> None:
    """Positions and readings of different shapes are refused."""
    with pytest.raises(InvalidInput, match="readings"):
        count_ones_per_element(np.zeros((2, 3), dtype=np.uint64), np.zeros((3, 2), dtype=bool))
