"""Two releases compared: sizes, union, intersection and Jaccard index of their sets; and the size of one set. No charge.

Theory of operation. Both vectors have the same m, k, scheme, seed and normalisation, so an element of both sets sets the
same bits in both. The four joint bit counts, unmixed through the inverse of the 2x2 flip matrix on each side, estimate
how many raw bits are zeros: shares α on the left, β on the right, γ on both at one place. An element leaves a given
bit alone with chance exp(-κ), κ = -k·ln(1 - 1/m), so they estimate exp(-κ·|A|), exp(-κ·|B|) and exp(-κ·|A ∪ B|). Hence
γ = e^(κc)·α·β for c common elements, and γ = (α·β)^(1/(1+J)) for the Jaccard index J = c/|A ∪ B|.

Each interval holds the values that a test does not reject (`core.estimates.intervals`). The test of |A| looks at
α, that of the union at γ; those of c and J look at γ less what α and β lead to expect, and reckon with the errors of α
and β. In the terms of `core.encodings.bloom.joint_bits` the weights (w, x, y) are
    |A| = n        (0, -1, 0),  α = e^(-κn)
    union u        (-1, 0, 0),  γ = e^(-κu)
    intersection   (1, -e^(κc)·(β+β')/2, -e^(κc)·(α+α')/2),  γ = e^(κc)·α·β
    Jaccard        (1, -γ/((1+J)·α), -γ/((1+J)·β)),  γ = (α·β)^(1/(1+J))
α' and β' are the estimates of α and β that agree with the tested c: α and β moved by their regressions on what is off.
With them the weights lose nothing, as αβ - α'β' = (α-α')·(β+β')/2 + (β-β')·(α+α')/2; at α and β alone they fall short
where few zeros are left (a relative deviation of α above 0.15, a load of 2 and more). Nothing bounds c by the sizes,
which are estimates themselves: the interval of c may pass that of a size.

Full vectors look alike. A size or union whose interval holds the largest one that a vector can show, that of half a zero bit,
has no upper end. Where α or β is no more than max(3, z) standard deviations above 0, z the two-sided quantile of the
confidence, any overlap would explain what is seen (as in E. C. Fieller's intervals for ratios, J. R. Statist. Soc. B 16,
1954): the intersection is [0, ∞) then.

The size of one set: n elements throw n·k marks on m bits, so about m·(1 - (1 - 1/m)^(nk)) bits of the raw vector are ones;
inverted, n̂ = ln(1 - ones/m) / (k·ln(1 - 1/m)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import gt, mul
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.joint_bits import Weights, Zeros, covariances, sum_spread
from veilset.core.encodings.interface import CHUNK_BYTES, count_ones
from veilset.core.estimates.intervals import BoundedTest, Estimate, Spread, check_confidence
from veilset.core.estimates.results import Comparison, SizeEstimate
from veilset.core.params import check_integer
from veilset.errors import must_be

_MOST_FLIPPED = 0.5 - 2.0**-20
_LEAST_DEVIATIONS = 3.0
_ROUNDS = 3  # of α' and β'; more change nothing
_LEAST_VARIANCE = 1e-300


@dataclass(frozen=True, slots=True)
class JointCounts:
    """Ones of two noisy vectors: of the left, of the right, and of both at one place."""

    left: int
    right: int
    both: int


def count_joint_bits(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> JointCounts:
    """Count two packed vectors of one length, chunk by chunk."""
    starts = range(0, len(left), CHUNK_BYTES)
    both = sum(count_ones(left[start : start + CHUNK_BYTES] & right[start : start + CHUNK_BYTES]) for start in starts)
    return JointCounts(count_ones(left), count_ones(right), both)


class PairedReleases:
    """The tests and estimates of two releases of one shape, from their joint counts.

    bits, hashes: of both. flips: flip probabilities of left and right, in (0, 1/2]; at 1/2 a vector says nothing and intervals
    hold all that is possible. confidence: of each interval by itself, in (0, 1). Raises InvalidInput.
    """

    def __init__(
        self, bits: int, hashes: int, flips: tuple[float, float], counts: JointCounts, confidence: float
    ) -> None:
        check_integer("left", counts.left, 0, bits)
        check_integer("right", counts.right, 0, bits)
        check_integer("both", counts.both, max(0, counts.left + counts.right - bits), min(counts.left, counts.right))
        if not all(0.0 < flip <= 0.5 for flip in flips):
            raise must_be("flips", "two numbers in (0, 0.5]", flips)
        self._bits = bits
        self._confidence = check_confidence(confidence)
        self._flips = (min(flips[0], _MOST_FLIPPED), min(flips[1], _MOST_FLIPPED))
        self._kappa = -hashes * math.log1p(-1.0 / bits)
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
        """The estimates of both sizes, union, intersection and Jaccard index."""
        size_left, size_right = self._elements(self._alpha), self._elements(self._beta)
        union = self._elements(self._gamma)
        common = size_left + size_right - union
        return Comparison(
            open_ended(self.size_test(left=True), size_left),
            open_ended(self.size_test(left=False), size_right),
            open_ended(self.union_test(), union),
            open_ended(self.intersection_test(), common),
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
        """The test of |A ∩ B|; it accepts everything where too few zeros are left."""
        scale, shown = self._scales[2], self._shows_zeros()

        def spread(common: float) -> Spread:
            if not shown:
                return Spread(math.inf)
            zeros, weights = self._agreeing(math.exp(self._kappa * common))
            return sum_spread(self._bits, self._flips, zeros, weights, scale)

        return BoundedTest(
            scale * self._gamma,
            lambda common: scale * self._product * math.exp(self._kappa * common),
            spread,
            0.0,
            self._most,
            self._confidence,
        )

    def jaccard_test(self) -> BoundedTest:
        """The test of |A ∩ B| / |A ∪ B|."""
        scale, product = self._scales[2], min(self._product, 1.0)

        def expected(index: float) -> float:
            return math.pow(product, 1.0 / (1.0 + index))

        def spread(index: float) -> Spread:
            zeros = _possible(*self._zeros, self._product / expected(index))
            slope = -zeros.both / (1.0 + index)
            weights = (1.0, slope / zeros.left, slope / zeros.right)
            return sum_spread(self._bits, self._flips, zeros, weights, scale)

        return BoundedTest(
            scale * self._gamma, lambda index: scale * expected(index), spread, 0.0, 1.0, self._confidence
        )

    def _decreasing(
        self, seen: float, scale: float, zeros: Callable[[float], Zeros], weights: tuple[float, float, float]
    ) -> BoundedTest:
        """The test of a size by a share of zeros, ``seen``, that falls with it; zeros: all shares, given that one."""

        def mean(size: float) -> float:
            return -scale * math.exp(-self._kappa * size)

        def spread(size: float) -> Spread:
            return sum_spread(self._bits, self._flips, zeros(math.exp(-self._kappa * size)), weights, scale)

        return BoundedTest(-scale * seen, mean, spread, 0.0, self._most, self._confidence)

    def _agreeing(self, factor: float) -> tuple[Zeros, Weights]:
        """Shares of zeros that agree with γ = ``factor``·α·β, and the weights of γ - factor·α·β about them."""
        seen_left, seen_right = left, right = self._zeros
        away = self._gamma - factor * self._product
        for _ in range(_ROUNDS):
            matrix = covariances(self._bits, self._flips, _possible(left, right, 1.0 / factor))
            for _ in range(_ROUNDS):
                weights = (1.0, -factor * (seen_right + right) / 2.0, -factor * (seen_left + left) / 2.0)
                joint, with_left, with_right = (sum(map(mul, row, weights)) for row in matrix)
                variance = joint + weights[1] * with_left + weights[2] * with_right
                pull = away / max(variance, _LEAST_VARIANCE)
                left = self._share(seen_left - pull * with_left)
                right = self._share(seen_right - pull * with_right)
        return _possible(left, right, 1.0 / factor), weights

    def _shows_zeros(self) -> bool:
        """Whether both shares of raw zeros are surely above 0."""
        left, right = self._zeros
        _, (_, variance, _), (_, _, other) = covariances(self._bits, self._flips, Zeros(left, right, left * right))
        deviations = max(_LEAST_DEVIATIONS, -NormalDist().inv_cdf((1.0 - self._confidence) / 2.0))
        least = (deviations * math.sqrt(max(0.0, value)) for value in (variance, other))
        return all(map(gt, (self._alpha, self._beta), least))

    def _share(self, zeros: float) -> float:
        """An estimated share of zeros, moved into what a vector can have: half a zero to all."""
        return min(max(zeros, self._least), 1.0)

    def _elements(self, zeros: float) -> float:
        """Elements that leave this share of zeros; below 0 for a share above 1."""
        return -math.log(max(zeros, self._least)) / self._kappa


def open_ended(test: BoundedTest, best: float) -> Estimate:
    """The estimate of a number of elements; full vectors look alike, so an interval up to the test's end has none."""
    found = test.estimate(best)
    return found if found.high < test.high else replace(found, high=math.inf)


def _possible(left: float, right: float, spared: float) -> Zeros:
    """Shares of zeros that two vectors can have whose common elements leave this share of zeros: not above it."""
    spared = min(spared, 1.0)
    left, right = min(left, spared), min(right, spared)
    return Zeros(left, right, left * right / spared)


def size_from_ones(
    bits: int, hashes: int, flip_probability: float, noisy_ones: int, confidence: float = 0.95
) -> SizeEstimate:
    """Estimate from the noisy bits alone: ones = (noisy_ones - p·m)/(1 - 2p), unbiased, p the flip probability.

    The interval holds the sizes that `size_test` does not reject: it lies within what is possible, and is right as often
    as it says for a size of 0, too. At p = 1/2 nothing can be said: the interval is the whole range. Raises InvalidInput.
    """
    check_confidence(confidence)
    if flip_probability >= 0.5:
        return SizeEstimate(0.0, 0.0, math.inf, confidence, "bits")
    test = size_test(bits, hashes, flip_probability, noisy_ones, confidence)
    ones = (noisy_ones - flip_probability * bits) / (1 - 2 * flip_probability)
    within = min(max(ones, 0.0), bits - 0.5)
    found = open_ended(test, math.log1p(-within / bits) / (hashes * math.log1p(-1 / bits)))
    return SizeEstimate(found.estimate, found.low, found.high, confidence, "bits")


def size_test(bits: int, hashes: int, flip_probability: float, noisy_ones: int, confidence: float) -> BoundedTest:
    """The test of the size: that of `comparison`, beside an empty set. p below 1/2."""
    flips = (flip_probability, flip_probability)
    return PairedReleases(bits, hashes, flips, JointCounts(noisy_ones, 0, 0), confidence).size_test(left=True)
