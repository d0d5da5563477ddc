"""Normal scores: how many standard deviations a count of flips lies from what the stated rate allows.

Tails are exact (binomial) or matched in mean and variance (sums of squares) and then expressed as a normal score, so
that the false-alarm rate of a limit z is 2·P(N > z) per score, also where counts are small or skewed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, gamma, norm

Floats = NDArray[np.float64]


def binomial_scores(counts: NDArray[np.int64], trials: int, probability: float) -> Floats:
    """Score of each count of successes among ``trials``, from the exact binomial tail."""
    upper = binom.sf(counts - 1, trials, probability)
    lower = binom.cdf(counts, trials, probability)
    return np.asarray(np.where(upper < lower, norm.isf(upper), -norm.isf(lower)), dtype=np.float64)


def binomial_score(count: int, trials: int, probability: float) -> float:
    """The same for one count."""
    return float(binomial_scores(np.array([count]), trials, probability)[0])


def difference_score(count: int, trials: int, other_count: int, other_trials: int) -> float:
    """Two-sample score for equal proportions, both samples large."""
    pooled = (count + other_count) / (trials + other_trials)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / trials + 1 / other_trials))
    return (count / trials - other_count / other_trials) / deviation if deviation else math.inf


def dispersion_score(block_counts: NDArray[np.int64], block: int, probability: float) -> float:
    """Score of Σ((c - b·p)²/(b·p·q)) over the counts of blocks of b bits each; positive for over-dispersion.

    The sum of n squares has mean n and variance n·(2 + (1 - 6pq)/(b·p·q)); its tail is taken from the gamma law with
    these moments.
    """
    variance = block * probability * (1 - probability)
    squares = float((((block_counts - block * probability) ** 2) / variance).sum())
    blocks = len(block_counts)
    spread = blocks * (2 + (1 - 6 * probability * (1 - probability)) / variance)
    law = gamma(blocks**2 / spread, scale=spread / blocks)
    upper, lower = float(law.sf(squares)), float(law.cdf(squares))
    return float(norm.isf(upper) if upper < lower else -norm.isf(lower))


def standardised(flips: NDArray[np.uint8], probability: float) -> Floats:
    """0/1 flips to mean 0 and variance 1 under the stated rate."""
    return np.subtract(flips, probability, dtype=np.float64) / math.sqrt(probability * (1 - probability))


def pair_scores(flips: NDArray[np.uint8], probability: float) -> Floats:
    """Score of the correlation of every pair of rows of packed flips, without padding; shape (pairs,)."""
    bits = 8 * flips.shape[1]
    totals = np.bitwise_count(flips).sum(axis=1, dtype=np.int64)
    one, two = np.triu_indices(len(flips), 1)
    joint = np.array([np.bitwise_count(flips[i] & flips[j]).sum(dtype=np.int64) for i, j in zip(one, two, strict=True)])
    covariance = joint - probability * (totals[one] + totals[two]) + bits * probability**2
    return np.asarray(covariance / (math.sqrt(bits) * probability * (1 - probability)), dtype=np.float64)


def largest(scores: Floats) -> float:
    """The score furthest from zero, with its sign; NaN if any is NaN."""
    return float(scores[np.argmax(np.abs(scores))])
