"""What a filter's answers are worth: error rates predicted from its parameters.

Theory of operation. A non-member's bit reads 1 with chance p0 and a member's with chance a = 1 - p_flip, independently
from bit to bit in the random-oracle model of the hash. So the number of ones among an element's d distinct positions
is binomial, and both error rates of a test "at least t ones" are binomial tails. Before a release exists p0 follows
from the planned size; afterwards it is read off the release itself (`core.encodings.bloom.decoding`).

Everything here is a function of public parameters, hence post-processing: it costs no budget.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
