"""Black-box lower bounds on epsilon: from independent calls on a short vector (A4), and from large releases (A5).

A correct mechanism must pass under the ceiling ε, by proof, and over the floor, or the audit saw nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.bounds import chance_below, epsilon_lower_bound
from audit.release import LARGE_BITS, Mechanism, calibrated, random_vector, release
from audit.verdict import Findings, Verdict

ERROR = 1e-8
"""Of one lower bound, shared among its events. All bounds of a run together err with less than 1e-6."""

CALL_BITS = 64
CALL_PLACES = {1: (63,), 4: (0, 21, 42, 63)}
"""Changed bits → where the two inputs of the short vector differ; the first and the last bit are among them."""


def call_bound(mechanism: Mechanism, changed_bits: int, calls: int, floor: float, epsilon: float = 1.0) -> Verdict:
    """Two neighbouring vectors of 64 bits, each released ``calls`` times, in turn."""
    response = calibrated(epsilon, changed_bits, CALL_BITS)
    differing = np.zeros(CALL_BITS, dtype=np.uint8)
    differing[list(CALL_PLACES[changed_bits])] = 1
    mask = np.packbits(differing)
    background = random_vector(CALL_BITS) & ~mask
    noisy = np.array(
        [release(mechanism, background | bits, CALL_BITS, response.threshold) for bits in (mask, 0 * mask) * calls]
    )
    seen = np.bitwise_count(noisy & mask).sum(axis=1)
    present, absent = (np.bincount(seen[start::2], minlength=changed_bits + 1) for start in (0, 1))
    return bound_verdict("calls", present, absent, floor, epsilon, response.flip_probability)


def block_bound(mechanism: Mechanism, changed_bits: int, trials: int, floor: float, epsilon: float = 1.0) -> Verdict:
    """Vectors of 4 Mbit made of blocks of ``changed_bits`` bits; a coin decides whether a block is ones or zeros.

    trials: about how many blocks of either kind.
    """
    response = calibrated(epsilon, changed_bits)
    blocks = LARGE_BITS // changed_bits
    bits = blocks * changed_bits
    counts = np.zeros((2, changed_bits + 1), dtype=np.int64)
    for _ in range(-(-2 * trials // blocks)):
        present = np.unpackbits(random_vector(blocks), count=blocks)
        noisy = release(mechanism, np.packbits(np.repeat(present, changed_bits)), bits, response.threshold)
        seen = _block_ones(np.unpackbits(noisy, count=bits), changed_bits)
        counts += np.bincount(present * np.uint8(changed_bits + 1) + seen, minlength=counts.size).reshape(counts.shape)
    return bound_verdict("blocks", counts[1], counts[0], floor, epsilon, response.flip_probability)


def bound_verdict(
    trials_of: str,
    present: NDArray[np.int64],
    absent: NDArray[np.int64],
    floor: float,
    epsilon: float,
    flip_probability: float,
) -> Verdict:
    """Bound and verdict from the counts of `epsilon_lower_bound`."""
    changed_bits = len(present) - 1
    trials = int(min(present.sum(), absent.sum()))
    findings = Findings(f"lower bound from 2 x {trials} {trials_of}")
    bound = epsilon_lower_bound(present, absent, ERROR)
    chance = chance_below(floor, trials, changed_bits, flip_probability, ERROR)
    findings.lower_bound(f"{changed_bits} changed bits", bound, floor, epsilon, ERROR + chance)
    return findings.verdict()


def _block_ones(bits: NDArray[np.uint8], block: int) -> NDArray[np.uint8]:
    columns = bits.reshape(-1, block)
    total = columns[:, 0].copy()
    for column in range(1, block):
        total += columns[:, column]
    return total
