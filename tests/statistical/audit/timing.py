"""The time of a release does not tell an empty vector from a full one (A9)."""

from __future__ import annotations

import gc
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from audit.release import Mechanism, calibrated
from audit.verdict import Findings, Verdict
from veilset_server.state.entropy import OsEntropy

BITS = 1 << 14
CALLS = 20_000
CROPPED = 0.1
LIMIT, TRIES = 4.5, 3


def timing(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Calls with either content in random order; the slowest tenth, which something else interrupted, is left out.

    A score is Welch's t. Noise of the machine exceeds the limit once in 150 000 tries; a difference that belongs to the
    content is there in every try.
    """
    findings = Findings("time of empty and full vectors")
    threshold = calibrated(epsilon, 1, BITS).threshold
    scores: list[float] = []
    while len(scores) < TRIES and not any(abs(t) <= LIMIT for t in scores):
        scores.append(_welch(*_timed(mechanism, threshold)))
    findings.repeated_score(f"{CALLS} calls", scores, LIMIT, TRIES)
    return findings.verdict()


def _timed(mechanism: Mechanism, threshold: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which calls had the full vector, and the nanoseconds of each. Both contents are written to the same memory."""
    full = np.random.default_rng().random(CALLS) < 0.5
    nanoseconds = np.zeros(CALLS, dtype=np.int64)
    vector = np.zeros(BITS // 8, dtype=np.uint8)
    source = OsEntropy().keystream()
    gc.disable()
    try:
        for call in range(CALLS):
            vector[:] = 0xFF if full[call] else 0
            start = perf_counter_ns()
            mechanism(vector, BITS, threshold, source)
            nanoseconds[call] = perf_counter_ns() - start
    finally:
        gc.enable()
    return full, nanoseconds


def _welch(full: NDArray[np.bool_], nanoseconds: NDArray[np.int64]) -> float:
    kept = nanoseconds <= np.quantile(nanoseconds, 1 - CROPPED)
    return float(ttest_ind(nanoseconds[kept & full], nanoseconds[kept & ~full], equal_var=False).statistic)
