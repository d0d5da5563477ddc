"""The audit's own instruments, against independent computations.

False-alarm rate of the drawn cases together: below 1e-6 per run.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from audit.bounds import chance_below, epsilon_lower_bound, lower_proportion, upper_proportion
from audit.scores import binomial_score, difference_score, dispersion_score, pair_scores, standardised
from audit.verdict import Findings


@pytest.mark.parametrize(("count", "trials"), [(0, 50), (1, 50), (17, 50), (50, 50), (123_456, 1_000_000)])
@pytest.mark.parametrize("error", [0.05, 1e-6, 1e-9])
def test_proportions_are_clopper_pearson(count: int, trials: int, error: float) -> None:
    """The two one-sided bounds are the ends of the two-sided interval at twice the error."""
    interval = binomtest(count, trials).proportion_ci(1 - 2 * error, method="exact")
    assert lower_proportion(count, trials, error) == pytest.approx(interval.low, rel=1e-6)
    assert upper_proportion(count, trials, error) == pytest.approx(interval.high, rel=1e-6)


@pytest.mark.parametrize("changed_bits", [1, 4])
def test_lower_bound_errs_as_rarely_as_asked(changed_bits: int) -> None:
    """At an error of 5% it is above the true epsilon in at most 5% of 1000 draws. False alarm below 1e-6."""
    draws, trials, error, epsilon0 = 1000, 2000, 0.05, 0.25
    flip = 1 / (1 + math.exp(epsilon0))
    generator = np.random.default_rng()
    law = binom.pmf(np.arange(changed_bits + 1), changed_bits, flip)
    absent = generator.multinomial(trials, law, size=draws)
    present = generator.multinomial(trials, law[::-1], size=draws)
    bounds = [epsilon_lower_bound(one, two, error) for one, two in zip(present, absent, strict=True)]
    above = sum(bound > changed_bits * epsilon0 for bound in bounds)
    assert above <= binom.isf(1e-7, draws, error), f"{above} of {draws} bounds above"
    assert max(bounds) > 0.4 * changed_bits * epsilon0


@pytest.mark.parametrize("giveaway", [[0, 1000], [1000, 0]])
def test_lower_bound_sees_every_direction(giveaway: list[int]) -> None:
    """Whichever of the two inputs never gives the event that the other one often gives."""
    never, often = np.array(giveaway), np.array([500, 500])
    assert epsilon_lower_bound(never, often, 1e-6) > 3
    assert epsilon_lower_bound(often, never, 1e-6) > 3


def test_chance_of_a_low_bound() -> None:
    """Computed chance that the bound of a correct mechanism falls below a floor, against 2000 draws."""
    draws, trials, error, flip, floor = 2000, 5000, 1e-6, 0.25, 0.95
    generator = np.random.default_rng()
    absent, present = generator.binomial(trials, (flip, 1 - flip), size=(draws, 2)).T
    below = sum(
        epsilon_lower_bound(np.array([trials - p, p]), np.array([trials - a, a]), error) < floor
        for p, a in zip(present, absent, strict=True)
    )
    chance = chance_below(floor, trials, 1, flip, error)
    assert 0.1 < chance < 0.9
    # The computed chance takes one of the two events, so it is an upper bound; the two agree most of the time.
    assert below <= binom.isf(1e-7, draws, chance)
    assert below >= 0.3 * draws * chance


@pytest.mark.parametrize(("count", "trials", "probability"), [(540, 1000, 0.5), (2, 4000, 0.01), (4_000, 10_000, 0.38)])
def test_binomial_score_has_the_exact_tail(count: int, trials: int, probability: float) -> None:
    """The tail of the score under the normal law is the tail of the count."""
    score = binomial_score(count, trials, probability)
    if count > trials * probability:
        assert norm.sf(score) == pytest.approx(1 - binom.cdf(count - 1, trials, probability), rel=1e-6)
    else:
        assert norm.cdf(score) == pytest.approx(binom.cdf(count, trials, probability), rel=1e-6)


def test_scores_grow_with_the_defect() -> None:
    """Equal proportions and fair spreads score low; the opposite scores high."""
    assert difference_score(500, 1000, 500, 1000) == 0
    assert difference_score(600, 1000, 500, 1000) == pytest.approx(4.4947, abs=1e-4)
    binomial_like = np.random.default_rng().binomial(64, 0.3, 100_000)
    assert abs(dispersion_score(binomial_like, 64, 0.3)) < 6
    assert dispersion_score(2 * np.random.default_rng().binomial(32, 0.3, 100_000), 64, 0.3) > 100
    assert dispersion_score(np.full(1000, 19), 64, 0.3) < -10


def test_pair_score_is_the_correlation() -> None:
    """Of the flips, each standardised by the stated rate: unrelated rows score low, and a row with itself √bits."""
    flips = np.random.default_rng().random((3, 65_536)) < 0.3
    rows = standardised(flips.astype(np.uint8), 0.3)
    scores = pair_scores(np.packbits(flips, axis=1), 0.3)
    wanted = [(rows[i] * rows[j]).sum() / 256 for i, j in ((0, 1), (0, 2), (1, 2))]
    assert scores.tolist() == pytest.approx(wanted, abs=1e-6)
    assert np.abs(scores).max() < 6
    assert pair_scores(np.packbits(flips[[0, 0]], axis=1), 0.3)[0] == pytest.approx(256, rel=0.03)


def test_verdict_fails_on_what_is_not_a_number() -> None:
    """NaN is never within bounds, and infinity is not either."""
    findings = Findings("nothing")
    findings.score("score", math.nan, 6)
    findings.score("score", -math.inf, 6)
    findings.lower_bound("bound", math.nan, 0, 1, 0)
    assert len(findings.verdict().failures) == 3


def test_verdict_adds_up_false_alarms() -> None:
    """Two-sided tails times the number of scores looked at."""
    findings = Findings("sum")
    findings.score("one", 0, 6.0)
    findings.score("many", 0, 6.5, tests=1000)
    findings.lower_bound("bound", 0.5, 0, 1, 1e-8)
    assert findings.verdict().false_alarm == pytest.approx(2 * norm.sf(6) + 2000 * norm.sf(6.5) + 1e-8)
    assert not findings.verdict().failures
