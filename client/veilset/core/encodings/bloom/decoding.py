"""Reading a noisy vector: from the ones at an element's positions to a decision, a score or a probability.

Theory of operation. A decoder needs the release alone. With a = 1 - p_flip the chance that a member's bit reads 1 and
p0 = ones/m of the noisy vector the chance that a non-member's does, t ones among d positions have the log-likelihood
ratio t·ln(a/p0) + (d - t)·ln((1-a)/(1-p0)). It grows with t, so every sensible test is "t >= threshold".

Elements whose k positions coincide are scored on their d < k distinct positions, and each d has a threshold of its own
from the same rule. So a caller's limit holds for every element by itself and not only on average, and for the default
rule the thresholds of all d are one cut of the score at 0, which no other test beats in TPR - FPR.

p0 outside [p_flip, 1 - p_flip] cannot come from any set and is moved to the nearer end for scores, so nothing here
divides by 0. At p0 >= a the vector says nothing: all scores are 0 and the default rule accepts nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.encodings.bloom.accuracy import binomial_tails, distinct_positions
from veilset.core.encodings.bloom.decoding_limits import Limits, refuse_false_positive_limit, refuse_true_positive_limit
from veilset.core.params import MAX_BITS, MAX_HASHES, MIN_BITS, check_choice, check_integer
from veilset.errors import InvalidInput


class Rule(StrEnum):
    """How the threshold is chosen when the caller sets no limit to an error rate."""

    BEST = "best"
    ALL_ONES = "all-ones"


@dataclass(frozen=True, slots=True)
class Decoder:
    """A ready test for one release (or one planned release), with its error rates; make it with `make_decoder`.

    thresholds[d]: ones that an element of d distinct positions needs, d = 0 .. hashes; d + 1 means never accepted.
    true_positive_rate, false_positive_rate: of a random member and non-member, averaged over d.
    """

    bits: int
    hashes: int
    flip_probability: float
    ones_fraction: float
    thresholds: tuple[int, ...]
    true_positive_rate: float
    false_positive_rate: float

    @property
    def threshold(self) -> int:
        """Ones that an ordinary element (all positions distinct) needs."""
        return self.thresholds[min(self.hashes, self.bits)]

    @property
    def advantage(self) -> float:
        """TPR - FPR."""
        return self.true_positive_rate - self.false_positive_rate

    def decide(self, ones: ArrayLike, distinct: ArrayLike) -> NDArray[np.bool_]:
        """Whether each element is taken for a member. ones, distinct: integers of one shape (or broadcasting), as
        `count_ones_per_element` returns them. Raises InvalidInput unless 0 <= ones <= distinct <= hashes."""
        observed, positions = self._checked(ones, distinct)
        return np.asarray(observed >= np.array(self.thresholds)[positions])

    def scores(self, ones: ArrayLike, distinct: ArrayLike) -> NDArray[np.float64]:
        """Log-likelihood ratios (natural log, finite) of "member" against "not a member"; arguments as in `decide`."""
        observed, positions = self._checked(ones, distinct)
        return np.asarray(score_table(self.hashes, self.flip_probability, self.ones_fraction)[positions, observed])

    def posteriors(self, ones: ArrayLike, distinct: ArrayLike, prior: ArrayLike) -> NDArray[np.float64]:
        """P(member | bits) for a prior in [0, 1]: 1/(1 + exp(-(score + logit prior))); a prior of 0 or 1 stays."""
        belief = np.asarray(prior, dtype=np.float64)
        if not np.all((belief >= 0.0) & (belief <= 1.0)):
            raise InvalidInput("prior", "a probability in [0, 1]")
        with np.errstate(divide="ignore"):
            odds = np.log(belief) - np.log1p(-belief)
        return np.asarray(np.exp(-np.logaddexp(0.0, -(self.scores(ones, distinct) + odds))))

    def _checked(self, ones: ArrayLike, distinct: ArrayLike) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        observed, positions = np.asarray(ones), np.asarray(distinct)
        if observed.dtype.kind not in "iu" or positions.dtype.kind not in "iu":
            raise InvalidInput("ones", "whole numbers (integer arrays)")
        if not np.all((observed >= 0) & (observed <= positions) & (positions <= self.hashes)):
            raise InvalidInput("ones", f"between 0 and the distinct positions, at most {self.hashes} of them")
        return observed, positions.astype(np.int64)


def make_decoder(
    bits: int,
    hashes: int,
    flip_probability: float,
    ones_fraction: float,
    *,
    rule: Rule = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
) -> Decoder:
    """Choose the thresholds for a vector and predict the error rates.

    bits, hashes: m and k. flip_probability: p_flip in (0, 1/2]. ones_fraction: p0 = ones/m of the noisy vector (or
    `expected_ones_fraction` before it exists), in [0, 1]. rule: BEST has the largest TPR - FPR, ALL_ONES asks for t = d.
    max_false_positive_rate: the test of the largest TPR with at most this FPR, in place of the rule;
    min_true_positive_rate: the test of the smallest FPR with at least this TPR; at most one of the two, in (0, 1).
    Raises InvalidInput, and PoorUtility with what is possible when the limit cannot be reached.
    """
    check_integer("bits", bits, MIN_BITS, MAX_BITS)
    check_integer("hashes", hashes, 1, MAX_HASHES)
    check_choice("rule", rule, Rule)
    if not 0.0 < flip_probability <= 0.5:
        raise InvalidInput("flip_probability", "a number in (0, 0.5]", flip_probability)
    if not 0.0 <= ones_fraction <= 1.0:
        raise InvalidInput("ones_fraction", "a number in [0, 1]", ones_fraction)
    limits = Limits(max_false_positive_rate, min_true_positive_rate)
    if limits.given and rule is not Rule.BEST:
        raise InvalidInput("rule", f"{Rule.BEST} where a limit to an error rate is given", str(rule))

    scores = score_table(hashes, flip_probability, ones_fraction)
    thresholds = []
    detected = mistaken = 0.0
    for distinct, chance in enumerate(distinct_positions(bits, hashes)):
        members = binomial_tails(distinct, 1.0 - flip_probability)
        strangers = binomial_tails(distinct, ones_fraction)
        if limits.given or rule is Rule.ALL_ONES:
            threshold = int(choose_thresholds(members, strangers, rule, limits))
        else:
            positive = scores[distinct, : distinct + 1] > 0.0
            threshold = int(np.argmax(positive)) if positive.any() else distinct + 1
        thresholds.append(threshold)
        detected += chance * members[threshold]
        mistaken += chance * strangers[threshold]

    most = min(hashes, bits)
    if max_false_positive_rate is not None and thresholds[most] > most:
        raise refuse_false_positive_limit(max_false_positive_rate, most, flip_probability, ones_fraction)
    if min_true_positive_rate is not None and thresholds[most] < 1:
        raise refuse_true_positive_limit(min_true_positive_rate, most, flip_probability)
    rates = (min(1.0, float(detected)), min(1.0, float(mistaken)))
    return Decoder(bits, hashes, flip_probability, ones_fraction, tuple(thresholds), *rates)


def choose_thresholds(
    members: NDArray[np.float64], strangers: NDArray[np.float64], rule: Rule, limits: Limits
) -> NDArray[np.int64]:
    """For elements of d positions the threshold in 0 .. d + 1 by rule or limit, for many vectors at once.

    members, strangers: P(at least t ones), t = 0 .. d + 1, float64 (..., d + 2). Returns int64 (...). BEST goes by the
    difference of the tails, which rounding blurs where it is nearly 0; a decoder goes by the sign of the score.
    """
    never = members.shape[-1] - 1
    if limits.max_false_positive_rate is not None:
        return np.asarray(np.argmax(strangers <= limits.max_false_positive_rate, axis=-1))
    if limits.min_true_positive_rate is not None:
        return np.asarray(never - np.argmax(members[..., ::-1] >= limits.min_true_positive_rate, axis=-1))
    if rule is Rule.ALL_ONES:
        return np.full(members.shape[:-1], never - 1)
    return np.asarray(never - np.argmax((members - strangers)[..., ::-1], axis=-1))


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


def count_ones_per_element(
    positions: NDArray[np.uint64], readings: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ones among the distinct positions of each element, and how many distinct positions it has.

    positions: (n, k) as `core.elements.hashing.positions` gives them; readings: bool (n, k), the noisy bits there. Two
    int64 arrays (n,). Rows with coinciding positions are rare (k²/2m) and take a slower way.
    """
    if positions.ndim != 2 or positions.shape != readings.shape:
        raise InvalidInput("readings", "of the shape of positions, (elements, hashes)")
    ones = readings.sum(axis=1, dtype=np.int64)
    distinct = np.full(len(positions), positions.shape[1], dtype=np.int64)
    ordered = np.sort(positions, axis=1)
    rows = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if rows.size:
        order = np.argsort(positions[rows], axis=1)
        sorted_positions = np.take_along_axis(positions[rows], order, axis=1)
        first = np.ones(order.shape, dtype=bool)
        first[:, 1:] = sorted_positions[:, 1:] != sorted_positions[:, :-1]
        ones[rows] = (np.take_along_axis(readings[rows], order, axis=1) & first).sum(axis=1)
        distinct[rows] = first.sum(axis=1)
    return ones, distinct
