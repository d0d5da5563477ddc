"""What a Bloom reading means: the law of the ones at an element's positions, for members and for non-members.

A non-member's bit reads 1 with chance p0 and a member's with chance a = 1 - p_flip, independently from bit to bit in the
random-oracle model of the hash. So the ones among an element's d distinct positions are binomial, and the error rates of a
test "at least t ones" are binomial tails. Before a release exists p0 follows from the planned size; afterwards it is the share
of ones of the noisy vector. t ones of d have the log-likelihood ratio t·ln(a/p0) + (d - t)·ln((1-a)/(1-p0)), which grows with
t, so every sensible test is "t >= threshold".

Elements whose k positions coincide are scored on their d < k distinct positions; each d is a group of readings of its own.
A reading is the integer d·(k + 1) + t.

p0 outside [p_flip, 1 - p_flip] cannot come from any set and is moved to the nearer end for scores, so nothing here
divides by 0. At p0 >= a the vector shows nothing: all scores are 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.encodings.decoder import Law, Limits, Rule
from veilset.errors import must_be


def expected_fill(size: ArrayLike, bits: ArrayLike, hashes: ArrayLike) -> NDArray[np.float64]:
    """Expected share of ones in the unperturbed vector, 1 - (1 - 1/m)^(n·k); in [0, 1].

    size: n distinct elements, >= 0. bits: m >= 2. hashes: k >= 1. Arrays broadcast; float64 out. Exact in the
    random-oracle model; the share itself scatters around it with a standard deviation below 1/(2·sqrt(m)).
    """
    draws = np.asarray(size, dtype=np.float64) * np.asarray(hashes, dtype=np.float64)
    return np.asarray(-np.expm1(draws * np.log1p(-1.0 / np.asarray(bits, dtype=np.float64))))


def expected_ones_fraction(fill: ArrayLike, flip_probability: ArrayLike) -> NDArray[np.float64]:
    """Share of ones after perturbing, p0 = p_flip + fill·(1 - 2·p_flip): the chance that a non-member's bit reads 1.

    fill in [0, 1], flip_probability in [0, 1/2]; arrays broadcast.
    """
    flip = np.asarray(flip_probability, dtype=np.float64)
    return np.asarray(flip + np.asarray(fill, dtype=np.float64) * (1.0 - 2.0 * flip))


def binomial_masses(trials: int, probability: ArrayLike) -> NDArray[np.float64]:
    """P(X = t) for t = 0 .. trials, X binomial(trials, probability); float64 of shape probability.shape + (trials + 1,).

    trials: 0 to 1000 (the coefficients must fit a float). probability: any shape, in [0, 1].
    """
    chance = np.asarray(probability, dtype=np.float64)[..., np.newaxis]
    successes = np.arange(trials + 1)
    return np.asarray(binomial_coefficients(trials) * chance**successes * (1.0 - chance) ** (trials - successes))


def binomial_tails(trials: int, probability: ArrayLike) -> NDArray[np.float64]:
    """P(X >= t) for t = 0 .. trials + 1, X as in `binomial_masses`; float64 of shape probability.shape + (trials + 2,).

    The first column is 1 and the last 0. Sums run from the far end, so small tails keep their relative accuracy (a few
    times trials ulp).
    """
    masses = binomial_masses(trials, probability)
    tails = np.zeros((*masses.shape[:-1], trials + 2))
    tails[..., :-1] = np.cumsum(masses[..., ::-1], axis=-1)[..., ::-1]
    tails[..., 0] = 1.0
    return np.minimum(tails, 1.0)


@lru_cache(maxsize=512)
def binomial_coefficients(trials: int) -> NDArray[np.float64]:
    """C(trials, t) for t = 0 .. trials, trials <= 1000; read-only float64 (trials + 1,)."""
    row = np.array([math.comb(trials, t) for t in range(trials + 1)], dtype=np.float64)
    row.setflags(write=False)
    return row


def distinct_positions(bits: ArrayLike, hashes: int) -> NDArray[np.float64]:
    """P(an element has exactly d distinct positions), d = 0 .. k; float64 of shape bits.shape + (k + 1,).

    k uniform draws from m positions, one draw at a time: the next one is new with chance 1 - d/m. Below d = k the chance
    is about k²/(2m), which matters for short vectors only.
    """
    length = np.asarray(bits, dtype=np.float64)[..., np.newaxis]
    seen = np.minimum(np.arange(hashes + 1) / length, 1.0)
    chances = np.zeros(seen.shape)
    chances[..., 0] = 1.0
    for _ in range(hashes):
        fresh = chances * (1.0 - seen)
        chances *= seen
        chances[..., 1:] += fresh[..., :-1]
    return chances


def per_bit_epsilon(flip_probability: float) -> float:
    """ε0 = ln(1/p_flip - 1), for p_flip in (0, 1/2]."""
    return math.log1p(-flip_probability) - math.log(flip_probability)


@lru_cache(maxsize=64)
def reading_law(bits: int, hashes: int, flip_probability: float, ones_fraction: float) -> Law:
    """The law of the readings of a vector of m = bits and k = hashes.

    flip_probability: p_flip in (0, 1/2]. ones_fraction: p0 = ones/m of the noisy vector (or `expected_ones_fraction`
    before it exists), in [0, 1]. Raises InvalidInput.
    """
    if not 0.0 < flip_probability <= 0.5:
        raise must_be("flip_probability", "a number in (0, 0.5]", flip_probability)
    if not 0.0 <= ones_fraction <= 1.0:
        raise must_be("ones_fraction", "a number in [0, 1]", ones_fraction)
    side = hashes + 1
    members, others = np.zeros((side, side)), np.zeros((side, side))
    for distinct, chance in enumerate(distinct_positions(bits, hashes)):
        members[distinct, : distinct + 1] = chance * binomial_masses(distinct, 1.0 - flip_probability)
        others[distinct, : distinct + 1] = chance * binomial_masses(distinct, ones_fraction)
    certain = np.zeros((side, side), dtype=np.bool_)
    np.fill_diagonal(certain, True)
    names = [["" if ones > distinct else f"{ones} of {distinct}" for ones in range(side)] for distinct in range(side)]
    return Law(
        members=members.ravel(),
        others=others.ravel(),
        scores=score_table(hashes, flip_probability, ones_fraction).ravel(),
        certain=certain.ravel(),
        groups=np.repeat(np.arange(side), side),
        saturated=ones_fraction >= 1.0 - flip_probability,
        names=tuple(name for row in names for name in row),
        facts={"ones_fraction": ones_fraction},
    )


@lru_cache(maxsize=64)
def score_table(hashes: int, flip_probability: float, ones_fraction: float) -> NDArray[np.float64]:
    """Log-likelihood ratios for every (d, t); read-only float64 (k + 1, k + 1), index [d, t], 0 where t > d."""
    distinct = np.arange(hashes + 1)[:, np.newaxis]
    ones = np.arange(hashes + 1)[np.newaxis, :]
    reads_one = min(max(ones_fraction, flip_probability), 1.0 - flip_probability)
    reads_zero = min(max(1.0 - ones_fraction, flip_probability), 1.0 - flip_probability)
    if ones_fraction >= 1.0 - flip_probability:
        table = np.zeros((hashes + 1, hashes + 1))
    else:
        for_one = math.log1p(-flip_probability) - math.log(reads_one)
        for_zero = math.log(flip_probability) - math.log(reads_zero)
        table = np.where(ones <= distinct, ones * for_one + (distinct - ones) * for_zero, 0.0)
    table.setflags(write=False)
    return table


def choose_thresholds(
    members: NDArray[np.float64], others: NDArray[np.float64], rule: Rule, limits: Limits
) -> NDArray[np.int64]:
    """For elements of d positions the threshold in 0 .. d + 1 by rule or limit, for many vectors at once.

    members, others: P(at least t ones), t = 0 .. d + 1, float64 (..., d + 2). Returns int64 (...). For ranking only: BEST uses
    the difference of the tails, which rounding blurs near 0, while a decoder uses the sign of the score.
    """
    never = members.shape[-1] - 1
    if limits.max_false_positive_rate is not None:
        return np.asarray(np.argmax(others <= limits.max_false_positive_rate, axis=-1))
    if limits.min_true_positive_rate is not None:
        return np.asarray(never - np.argmax(members[..., ::-1] >= limits.min_true_positive_rate, axis=-1))
    if rule is Rule.ALL_ONES:
        return np.full(members.shape[:-1], never - 1)
    return np.asarray(never - np.argmax((members - others)[..., ::-1], axis=-1))
