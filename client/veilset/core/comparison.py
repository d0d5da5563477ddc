"""Two releases compared: sizes, union, intersection and Jaccard index of the sets behind them, at no charge.

Theory of operation. Both vectors have the same m, k, scheme, seed and normalisation, so an element of both sets sets the
same bits in both. The four joint bit counts, unmixed through the inverse of the 2x2 flip matrix on each side, estimate
how many raw bits are zeros: shares α on the left, β on the right, γ on both at one place. An element leaves a given
bit alone with chance exp(-κ), κ = -k·ln(1 - 1/m), so they estimate exp(-κ·|A|), exp(-κ·|B|) and exp(-κ·|A ∪ B|). Hence
γ = e^(κc)·α·β for c common elements, and γ = (α·β)^(1/(1+J)) for the Jaccard index J = c/|A ∪ B|.

Each interval holds the values that a test does not reject (`veilset.core.bounded_interval`). The test of |A| looks at
α, that of the union at γ; those of c and J look at γ less what α and β lead to expect, and reckon with the errors of α
and β to first order. In the terms of `veilset.core.joint_bits` the weights (w, x, y) are
    |A| = n        (0, -1, 0),  α = e^(-κn)
    union u        (-1, 0, 0),  γ = e^(-κu)
    intersection   (1, -γ/α, -γ/β),  γ = e^(κc)·α·β
    Jaccard        (1, -γ/((1+J)·α), -γ/((1+J)·β)),  γ = (α·β)^(1/(1+J))
Nothing bounds c by the sizes, which are estimates themselves: the interval of c may pass that of a size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.bitset import count_ones
from veilset.core.bounded_interval import BoundedTest, Estimate, Spread
from veilset.core.joint_bits import Zeros, sum_spread
from veilset.core.params import FilterParameters, check_integer
from veilset.errors import InvalidInput

_MOST_FLIPPED = 0.5 - 2.0**-20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """Distinct elements of two sets, of both together and common to both, and the Jaccard index, with intervals."""

    left: Estimate
    right: Estimate
    union: Estimate
    intersection: Estimate
    jaccard: Estimate


@dataclass(frozen=True, slots=True)
class JointCounts:
    """Ones of two noisy vectors: of the left, of the right, and of both at one place."""

    left: int
    right: int
    both: int


def count_joint_bits(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> JointCounts:
    """Count two packed vectors of one length, chunk by chunk."""
    starts = range(0, len(left), _CHUNK_BYTES)
    both = sum(count_ones(left[start : start + _CHUNK_BYTES] & right[start : start + _CHUNK_BYTES]) for start in starts)
    return JointCounts(count_ones(left), count_ones(right), both)


class PairedReleases:
    """The tests and estimates of two releases of one shape, from their joint counts.

    shape: of both. flips: flip probabilities of left and right, in (0, 1/2]; at 1/2 a vector says nothing and intervals
    hold all that is possible. confidence: of each interval by itself, in (0, 1). Raises InvalidInput.
    """

    def __init__(
        self, shape: FilterParameters, flips: tuple[float, float], counts: JointCounts, confidence: float
    ) -> None:
        bits = shape.bits
        check_integer("left", counts.left, 0, bits)
        check_integer("right", counts.right, 0, bits)
        check_integer("both", counts.both, max(0, counts.left + counts.right - bits), min(counts.left, counts.right))
        if not all(0.0 < flip <= 0.5 for flip in flips):
            raise InvalidInput("flips", "two numbers in (0, 0.5]", flips)
        self._bits = bits
        self._confidence = confidence
        self._flips = (min(flips[0], _MOST_FLIPPED), min(flips[1], _MOST_FLIPPED))
        self._kappa = -shape.hashes * math.log1p(-1.0 / bits)
        self._least = 0.5 / bits  # half a zero stands for none
        (p, q), (u, v) = self._flips, (1.0 - 2.0 * self._flips[0], 1.0 - 2.0 * self._flips[1])
        left, right = (counts.left / bits - p) / u, (counts.right / bits - q) / v
        both = ((counts.both - q * counts.left - p * counts.right) / bits + p * q) / (u * v)
        self._alpha, self._beta, self._gamma = 1.0 - left, 1.0 - right, 1.0 - left - right + both
        self._scales = (bits * u, bits * v, bits * u * v)  # shares → counts
        self._zeros = (self._share(self._alpha), self._share(self._beta))
        self._product = max(self._alpha, self._least) * max(self._beta, self._least)
        self._most = self._elements(0.0)

    def compare(self) -> Comparison:
        """All five estimates."""
        size_left, size_right = self._elements(self._alpha), self._elements(self._beta)
        union = self._elements(self._gamma)
        common = size_left + size_right - union
        return Comparison(
            self.size_test(left=True).estimate(size_left),
            self.size_test(left=False).estimate(size_right),
            self.union_test().estimate(union),
            self.intersection_test().estimate(common),
            self.jaccard_test().estimate(common / union if union > 0.0 else 0.0),
        )

    def size_test(self, *, left: bool) -> BoundedTest:
        """The test of |A| (left) or |B|."""
        other = self._zeros[1 if left else 0]

        def zeros(share: float) -> Zeros:
            return Zeros(share, other, share * other) if left else Zeros(other, share, share * other)

        seen, scale = (self._alpha, self._scales[0]) if left else (self._beta, self._scales[1])
        weights = (0.0, -1.0, 0.0) if left else (0.0, 0.0, -1.0)
        return self._decreasing(seen, scale, zeros, weights)

    def union_test(self) -> BoundedTest:
        """The test of |A ∪ B|."""

        def zeros(share: float) -> Zeros:
            return Zeros(max(self._zeros[0], share), max(self._zeros[1], share), share)

        return self._decreasing(self._gamma, self._scales[2], zeros, (-1.0, 0.0, 0.0))

    def intersection_test(self) -> BoundedTest:
        """The test of |A ∩ B|."""
        return self._dependence(lambda c: self._product * math.exp(self._kappa * c), lambda _: 1.0, self._most)

    def jaccard_test(self) -> BoundedTest:
        """The test of |A ∩ B| / |A ∪ B|."""
        product = min(self._product, 1.0)
        return self._dependence(lambda j: product ** (1.0 / (1.0 + j)), lambda j: 1.0 / (1.0 + j), 1.0)

    def _decreasing(
        self, seen: float, scale: float, zeros: Callable[[float], Zeros], weights: tuple[float, float, float]
    ) -> BoundedTest:
        """The test of a size by a share of zeros, ``seen``, that falls with it; zeros: all shares, given that one."""

        def mean(size: float) -> float:
            return -scale * math.exp(-self._kappa * size)

        def spread(size: float) -> Spread:
            return sum_spread(self._bits, self._flips, zeros(math.exp(-self._kappa * size)), weights, scale)

        return BoundedTest(-scale * seen, mean, spread, 0.0, self._most, self._confidence)

    def _dependence(
        self, expected: Callable[[float], float], power: Callable[[float], float], high: float
    ) -> BoundedTest:
        """The test by γ of a value in [0, high] for which ``expected``, proportional to (α·β)^power, is γ."""
        scale = self._scales[2]

        def spread(value: float) -> Spread:
            spared = min(
                self._product / expected(value), 1.0
            )  # by the common elements: each vector's share is below it
            left, right = (min(share, spared) for share in self._zeros)
            both = left * right / spared
            weights = (1.0, -power(value) * both / left, -power(value) * both / right)
            return sum_spread(self._bits, self._flips, Zeros(left, right, both), weights, scale)

        return BoundedTest(
            scale * self._gamma, lambda value: scale * expected(value), spread, 0.0, high, self._confidence
        )

    def _share(self, zeros: float) -> float:
        """An estimated share of zeros, moved into what a vector can have: half a zero to all."""
        return min(max(zeros, self._least), 1.0)

    def _elements(self, zeros: float) -> float:
        """Elements that leave this share of zeros; below 0 for a share above 1."""
        return -math.log(max(zeros, self._least)) / self._kappa
