"""What a Bloom reading means: the law of the ones at an element's positions, for members and for non-members.

With a = 1 - p_flip the chance that a member's bit reads 1 and p0 = ones/m of the noisy vector the chance that a non-member's
does, t ones among d positions have the log-likelihood ratio t·ln(a/p0) + (d - t)·ln((1-a)/(1-p0)). It grows with t, so
every sensible test is "t >= threshold".

Elements whose k positions coincide are scored on their d < k distinct positions; each d is a group of readings of its own.
A reading is the integer d·(k + 1) + t.

p0 outside [p_flip, 1 - p_flip] cannot come from any set and is moved to the nearer end for scores, so nothing here
divides by 0. At p0 >= a the vector shows nothing: all scores are 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.accuracy import binomial_masses, distinct_positions
from veilset.core.encodings.decoder import Law, Limits, Rule
from veilset.errors import must_be


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

    members, others: P(at least t ones), t = 0 .. d + 1, float64 (..., d + 2). Returns int64 (...). For ranking: BEST goes by
    the difference of the tails, which rounding blurs where it is nearly 0; a decoder goes by the sign of the score.
    """
    never = members.shape[-1] - 1
    if limits.max_false_positive_rate is not None:
        return np.asarray(np.argmax(others <= limits.max_false_positive_rate, axis=-1))
    if limits.min_true_positive_rate is not None:
        return np.asarray(never - np.argmax(members[..., ::-1] >= limits.min_true_positive_rate, axis=-1))
    if rule is Rule.ALL_ONES:
        return np.full(members.shape[:-1], never - 1)
    return np.asarray(never - np.argmax((members - others)[..., ::-1], axis=-1))
