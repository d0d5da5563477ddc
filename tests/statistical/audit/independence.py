"""Noise is independent: along one release, between releases, and between processes (A6).

Correlations are sums of products of standardised flips. At ε <= 2 and the sizes used here their skewness makes the far
tail at most twice as heavy as the normal one; the false-alarm rates stated include that factor.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from audit.children import released_by_children
from audit.release import LARGE_BITS, Bits, Mechanism, calibrated, random_vector, release
from audit.scores import binomial_scores, dispersion_score, largest, pair_scores, standardised
from audit.verdict import Findings, Verdict

LAG_LIMIT, DISPERSION_LIMIT, PAIR_LIMIT = 7.5, 7.0, 6.5
BLOCKS = (2, 8, 64, 512, 4096, 65536)
SKEWNESS_ALLOWANCE = 2
RELEASES, RELEASE_BITS = 40, 1 << 18


def within_release(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Autocorrelation of 4 Mbit of noise at every lag below 2^21, and the spread of its counts in blocks."""
    findings = Findings("independence within a release")
    response = calibrated(epsilon, 1)
    p = response.flip_probability
    vector = random_vector(LARGE_BITS)
    flips = np.unpackbits(vector ^ release(mechanism, vector, LARGE_BITS, response.threshold))
    spectrum = np.abs(scipy.fft.rfft(standardised(flips, p))) ** 2
    lags = scipy.fft.irfft(spectrum)[1 : LARGE_BITS // 2] / math.sqrt(LARGE_BITS)
    worst = int(np.argmax(np.abs(lags)))
    tests = SKEWNESS_ALLOWANCE * len(lags)
    findings.score(f"lags 1 to {len(lags)}, most at {worst + 1}", float(lags[worst]), LAG_LIMIT, tests)
    for block in BLOCKS:
        counts = flips.reshape(-1, block).sum(axis=1, dtype=np.int64)
        findings.score(f"spread in blocks of {block}", dispersion_score(counts, block, p), DISPERSION_LIMIT)
    return findings.verdict()


def between_releases(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Forty releases of equal, nearly equal and unrelated contents: all pairs, and the number of flips of each."""
    findings = Findings("independence between releases")
    response = calibrated(epsilon, 1)
    same = random_vector(RELEASE_BITS)
    contents = [same] * (RELEASES // 2)
    contents += [_with_bit_changed(same, place) for place in range(RELEASES // 4)]
    contents += [random_vector(RELEASE_BITS) for _ in range(RELEASES // 4)]
    flips = np.array([vector ^ release(mechanism, vector, RELEASE_BITS, response.threshold) for vector in contents])
    _score_rows(findings, flips, response.flip_probability)
    return findings.verdict()


def between_processes(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Eight children forked from one state release the same content: all pairs."""
    findings = Findings("independence between processes")
    response = calibrated(epsilon, 1)
    vector = random_vector(RELEASE_BITS)
    noisy = released_by_children(mechanism, vector, response.threshold)
    _score_rows(findings, noisy ^ vector, response.flip_probability)
    return findings.verdict()


def _score_rows(findings: Findings, flips: NDArray[np.uint8], p: float) -> None:
    pairs = pair_scores(flips, p)
    findings.score(f"{len(pairs)} pairs", largest(pairs), PAIR_LIMIT, SKEWNESS_ALLOWANCE * len(pairs))
    totals = np.bitwise_count(flips).sum(axis=1, dtype=np.int64)
    findings.score(
        f"{len(totals)} totals", largest(binomial_scores(totals, RELEASE_BITS, p)), PAIR_LIMIT, tests=len(totals)
    )
    findings.score("spread of the totals", dispersion_score(totals, RELEASE_BITS, p), PAIR_LIMIT)


def _with_bit_changed(vector: Bits, place: int) -> Bits:
    changed = vector.copy()
    changed[place] ^= 0x80
    return changed
