"""How many elements of an own list are in the set behind a release: post-processing, at no charge.

Theory of operation. An own list of r distinct elements, c of them in the set, is read at its r·k positions; T of them
read 1. A common element's position reads 1 with chance a = 1 - p, p the flip probability, any other's with chance p0, the
share of ones of the whole noisy vector. So e(c) = T - c·k·a - (r - c)·k·p0 has mean 0 at the true c, and its root
(T - r·k·p0) / (k·(a - p0)) estimates c.

Variance of e(c) at the true c, with p0 from the same vector. Let w_j be how often position j occurs in the list, V_j the
raw bit, f the share of raw ones, η_j the noise of bit j (mean 0, variance q = p·(1-p), independent of all else). Positions
of elements that are not in the set are independent of V and uniform, so their N hits of raw ones are
binomial((r-c)·k, f) given V, and e(c) = (1-2p)·(N - (r-c)·k·f) + Σ_j (w_j - (r-c)·k/m)·η_j, without approximation. With
(1-2p)²·f·(1-f) + q = p0·(1-p0) and E Σ w_j² of uniform positions this gives
    Var e(c) = (r-c)·k·p0·(1-p0) + c·k·q + q·(c·k·(c·k - 1) - (r-c)·k)/m.
The first two terms are the binomial variance of independent readings; the last is what elements that share positions,
and so noise, add to it, with the noise of p0 (own derivation; the simulations in tests/statistical hold it to account).
Positions that coincide within one element count as often as they occur, on both sides. The third moment is that of
independent readings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.decoder import Law
from veilset.core.estimates.intervals import BoundedTest, Spread
from veilset.core.estimates.results import Overlap
from veilset.core.params import check_integer

_MOST = 1 << 62
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, slots=True)
class ListReading:
    """What an own list finds in a noisy vector.

    elements: r, distinct elements. ones: T, how many of their r·k positions read 1, each as often as it occurs.
    vector_ones: ones of the whole noisy vector.
    """

    elements: int
    ones: int
    vector_ones: int

    @classmethod
    def of(cls, bits: int, hashes: int, law: Law, found: NDArray[np.int64]) -> ListReading:
        """From how often each reading occurred; an element of d < k distinct positions counts as k of the same share."""
        distinct, ones = np.divmod(np.arange(len(found)), hashes + 1)
        shares = found * ones * hashes / np.maximum(distinct, 1)
        return cls(int(found.sum()), round(shares.sum()), round(law.facts["ones_fraction"] * bits))


def estimate_overlap(
    bits: int, hashes: int, flip_probability: float, reading: ListReading, confidence: float = 0.95
) -> Overlap:
    """How many elements of a list are in the set of a vector; ``flip_probability`` in (0, 1/2].

    A saturated vector shows nothing: the interval is [0, own_size] then. Raises InvalidInput.
    """
    test = overlap_test(bits, hashes, flip_probability, reading, confidence)
    none, every = test.mean(0.0), test.mean(test.high)
    unbiased = reading.elements * (test.observed - none) / (every - none) if every > none else 0.0
    return Overlap.of(test, reading.elements, unbiased)


def overlap_test(
    bits: int, hashes: int, flip_probability: float, reading: ListReading, confidence: float
) -> BoundedTest:
    """The test of T whose accepted values are the interval."""
    k, m, p, r = hashes, bits, flip_probability, reading.elements
    check_integer("elements", r, 0, _MOST)
    check_integer("ones", reading.ones, 0, r * k)
    check_integer("vector_ones", reading.vector_ones, 0, m)
    p0 = min(reading.vector_ones / m, 1.0 - p)
    possible = max(p0, p)
    noise, doubt = p * (1.0 - p), possible * (1.0 - possible)

    def mean(common: float) -> float:
        return k * (r * p0 + common * (1.0 - p - p0))

    def spread(common: float) -> Spread:
        members, others = common * k, (r - common) * k
        shared = noise * (members * (members - 1.0) - others) / m
        variance = members * noise + others * doubt + shared
        third = members * noise * (2.0 * p - 1.0) + others * doubt * (1.0 - 2.0 * possible)
        deviation = max(variance, 0.0) ** 0.5 + _LEAST_DEVIATION
        return Spread(deviation, third / deviation**3)

    return BoundedTest(float(reading.ones), mean, spread, 0.0, float(r), confidence)
