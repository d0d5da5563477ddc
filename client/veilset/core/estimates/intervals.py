"""Where a binomial count lies with a given confidence, from its exact distribution."""

from __future__ import annotations

import numpy as np

from veilset.core.params import check_integer
from veilset.errors import must_be

MAX_TRIALS = 10**7


def binomial_interval(trials: int, probability: float, confidence: float) -> tuple[int, int]:
    """The central interval [low, high] of Binomial(trials, probability): each tail outside is at most (1-confidence)/2.

    trials in [1, 10^7], probability in [0, 1], confidence in (0, 1). Time and memory are linear in trials.
    """
    check_integer("trials", trials, 1, MAX_TRIALS)
    if not 0 <= probability <= 1:
        raise must_be("probability", "a number in [0, 1]", probability)
    if not 0 < confidence < 1:
        raise must_be("confidence", "a number in (0, 1)", confidence)
    if probability in (0.0, 1.0):
        return round(trials * probability), round(trials * probability)
    tail = (1 - confidence) / 2
    cumulative = np.cumsum(_probabilities(trials, probability))
    low = int(np.searchsorted(cumulative, tail, side="right"))
    high = int(np.searchsorted(cumulative, 1 - tail, side="left"))
    return low, min(high, trials)


def _probabilities(trials: int, probability: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """P(X = i), i = 0 … trials, from the ratios of neighbours, so that nothing under- or overflows."""
    i = np.arange(trials, dtype=np.float64)
    ratios = np.log((trials - i) / (i + 1)) + np.log(probability) - np.log1p(-probability)
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(logs - logs.max())
    normalized: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return normalized
