"""Flip rates: as stated, alike for zeros and ones and for every fill (A2), and at every single position (A3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.release import LARGE_BITS, Mechanism, calibrated, ones, random_vector, release
from audit.scores import binomial_score, binomial_scores, difference_score, largest
from audit.verdict import Findings, Verdict

FILLS = (0.1, 0.5, 0.9)
RATE_LIMIT = 6.0
RELEASES_PER_FILL = 6  # of 4 Mbit: 75 Mbit in all

ODD_LENGTHS = (1, 7, 9, 63, 65, 8 * 97 + 5, 1003)
RELEASES_PER_LENGTH = 4000
POSITION_LIMIT = 6.5


def flip_rates(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Pooled counts of flipped zeros and flipped ones over 75 Mbit, for each fill and over all."""
    findings = Findings(f"flip rates at epsilon {epsilon:g}")
    response = calibrated(epsilon, 1)
    p = response.flip_probability
    total = np.zeros(4, dtype=np.int64)
    for fill in FILLS:
        counts = np.zeros(4, dtype=np.int64)  # flipped zeros, zeros, flipped ones, ones
        for _ in range(RELEASES_PER_FILL):
            vector = random_vector(LARGE_BITS, fill)
            flips = vector ^ release(mechanism, vector, LARGE_BITS, response.threshold)
            n_ones, flipped_ones = ones(vector), ones(flips & vector)
            counts += (ones(flips) - flipped_ones, LARGE_BITS - n_ones, flipped_ones, n_ones)
        _score_classes(findings, f"fill {fill:g}", counts, p)
        total += counts
    _score_classes(findings, "all fills", total, p)
    flipped, bits = int(total[0] + total[2]), int(total[1] + total[3])
    findings.score(f"all bits: rate {flipped / bits:.6f} for {p:.6f}", binomial_score(flipped, bits, p), RATE_LIMIT)
    return findings.verdict()


def _score_classes(findings: Findings, where: str, counts: NDArray[np.int64], p: float) -> None:
    flipped_zeros, zeros, flipped_ones, n_ones = (int(count) for count in counts)
    findings.score(f"{where}, zeros", binomial_score(flipped_zeros, zeros, p), RATE_LIMIT)
    findings.score(f"{where}, ones", binomial_score(flipped_ones, n_ones, p), RATE_LIMIT)
    findings.score(f"{where}, zeros - ones", difference_score(flipped_zeros, zeros, flipped_ones, n_ones), RATE_LIMIT)


def position_rates(mechanism: Mechanism, epsilon: float = 1.0) -> Verdict:
    """Flips of every position over many releases, counted apart where it holds a zero and where it holds a one.

    One content and its complement are released in turn, at lengths that end within a byte and within a word.
    """
    findings = Findings(f"flip rate of each position at epsilon {epsilon:g}")
    response = calibrated(epsilon, 1)
    each = RELEASES_PER_LENGTH // 2
    for bits in ODD_LENGTHS:
        content = np.unpackbits(random_vector(bits), count=bits)
        worst, padding = [], 0
        for values in (content, 1 - content):
            vector = np.packbits(values)
            noisy = np.array([release(mechanism, vector, bits, response.threshold) for _ in range(each)])
            unpacked = np.unpackbits(noisy, axis=1)
            padding += int(unpacked[:, bits:].sum())
            flips = (unpacked[:, :bits] ^ values).sum(axis=0, dtype=np.int64)
            worst.append(largest(binomial_scores(flips, each, response.flip_probability)))
        findings.score(f"{bits} bits", max(worst, key=abs), POSITION_LIMIT, tests=2 * bits)
        findings.exact(f"{bits} bits, ones among the padding", padding, 2 * each)
    return findings.verdict()
