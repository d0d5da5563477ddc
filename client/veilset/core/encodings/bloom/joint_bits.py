"""How a sum over all bits of two noisy Bloom filters scatters: standard deviation and skewness.

Theory of operation. For bit j let a, b be 1 where the raw vectors hold a zero. With flip probability p a noisy reading Y
gives ã = 1 - (Y - p)/(1 - 2p), whose mean is a; b̃ likewise on the other side. The sums are of φ = w·ã·b̃ + x·ã + y·b̃.

The marks that elements make fall into three classes: of the left set only, of the right only, of both. If their numbers
were Poisson the bits would be independent, and the moments of φ would follow from the four probabilities of (a, b), each
mixed through the flips. The true numbers are fixed. Given them the sum scatters, to first order in 1/m, like that of
    ψ = φ - E φ - Σ_i d_i·(N_i - λ_i),   d_i = E φ(N + 1 in class i) - E φ,
N_i the Poisson number of marks of class i on one bit and λ_i its mean: φ without its regression on the numbers
(L. Holst, "Two conditional limit theorems with applications", Annals of Statistics 7, 1979). Moments of ψ come from
E g(N)·N_i = λ_i·E g(N + 1 in class i), where one mark more only sets a, b or both to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from veilset.core.estimates.intervals import Spread

_LEAST_VARIANCE = 1e-12

# By zero indicators (a, b), or readings, of one bit on both sides: (0, 0), (0, 1), (1, 0), (1, 1).
Table = Sequence[float]
Weights = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Zeros:
    """Shares of raw zeros, each in (0, 1]: of the left vector, of the right, and of both at one place."""

    left: float
    right: float
    both: float


def sum_spread(
    bits: int, flips: tuple[float, float], zeros: Zeros, weights: tuple[float, float, float], scale: float
) -> Spread:
    """Spread of ``scale`` times the mean of φ over all bits.

    flips: flip probabilities of left and right, in (0, 1/2). zeros: the expected shares; ``both`` is moved between what
    independent sets and what the one within the other would give. weights: (w, x, y).
    """
    chances, loads = _chances(zeros)
    phi, square, cube = _moments(flips, weights, chances)
    variance, third = _regressed(chances, phi, square, cube, loads)
    variance = max(variance, 0.0) + _LEAST_VARIANCE / bits
    return Spread(scale * math.sqrt(variance / bits), third / variance / math.sqrt(variance * bits))


def covariances(bits: int, flips: tuple[float, float], zeros: Zeros) -> tuple[Weights, Weights, Weights]:
    """Covariance matrix of the means over all bits of ã·b̃, ã and b̃: the variances of `sum_spread`, all at once.

    From E ã² = a + p·(1-p)/(1-2p)². Arguments as there.
    """
    chances, loads = _chances(zeros)
    left, right = (flip * (1.0 - flip) / (1.0 - 2.0 * flip) ** 2 for flip in flips)
    tables = ((0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 1.0, 0.0, 1.0))
    means = [_mean(chances, table) for table in tables]
    slopes = [
        [marked - mean for marked in means_with_a_mark(chances, table)]
        for table, mean in zip(tables, means, strict=True)
    ]
    a, b, both = means[1], means[2], means[0]
    squares = (
        (both + left * b + right * a + left * right, both + left * b, both + right * a),
        (both + left * b, a + left, both),
        (both + right * a, both, b + right),
    )

    def covariance(one: int, other: int) -> float:
        regressed = math.fsum(map(mul, loads, map(mul, slopes[one], slopes[other])))
        return (squares[one][other] - means[one] * means[other] - regressed) / bits

    first, second, third = ((covariance(row, 0), covariance(row, 1), covariance(row, 2)) for row in range(3))
    return first, second, third


def _chances(zeros: Zeros) -> tuple[Table, Weights]:
    """Probabilities of (a, b), and loads of the three classes."""
    both = min(max(zeros.both, zeros.left * zeros.right), zeros.left, zeros.right)
    chances = (1.0 - zeros.left - zeros.right + both, zeros.right - both, zeros.left - both, both)
    common = math.log(both) - math.log(zeros.left) - math.log(zeros.right)
    return chances, (-math.log(zeros.left) - common, -math.log(zeros.right) - common, common)


def _moments(
    flips: tuple[float, float], weights: tuple[float, float, float], chances: Table
) -> tuple[Table, Table, Table]:
    """E φ, E φ² and E φ³ over the noise, by (a, b); φ is moved so that its overall mean is 0."""
    w, x, y = weights
    values = [w * a * b + x * a + y * b for a in _unmixed(flips[0]) for b in _unmixed(flips[1])]
    p, q = flips
    readings = [
        _product(left, right) for left in ((p, 1.0 - p), (1.0 - p, p)) for right in ((q, 1.0 - q), (1.0 - q, q))
    ]
    overall = _mean(chances, [_mean(row, values) for row in readings])
    values = [value - overall for value in values]
    squares = [value * value for value in values]
    cubes = [value * square for value, square in zip(values, squares, strict=True)]
    first, second, third = ([_mean(row, power) for row in readings] for power in (values, squares, cubes))
    return first, second, third


def _unmixed(flip: float) -> tuple[float, float]:
    """ã for the readings 0 and 1."""
    return 1.0 + flip / (1.0 - 2.0 * flip), -flip / (1.0 - 2.0 * flip)


def _regressed(
    chances: Table, phi: Table, square: Table, cube: Table, loads: tuple[float, float, float]
) -> tuple[float, float]:
    """Variance and third moment of ψ, from E φ (overall 0), E φ² and E φ³ by (a, b)."""
    variance = mean_square = _mean(chances, square)
    third = _mean(chances, cube)
    slopes = means_with_a_mark(chances, phi)
    bends = [mean - mean_square for mean in means_with_a_mark(chances, square)]
    for kind, (slope, load) in enumerate(zip(slopes, loads, strict=True)):
        variance -= load * slope**2
        third += load * slope * (2.0 * slope**2 - 3.0 * bends[kind])
        for other, (other_slope, other_load) in enumerate(zip(slopes, loads, strict=True)):
            two_marks = slope if kind == other else slopes[2]  # marks of two classes leave neither a nor b a zero
            third += 3.0 * load * slope * other_load * other_slope * (two_marks - slope - other_slope)
    return variance, third


def means_with_a_mark(chances: Table, table: Table) -> tuple[float, float, float]:
    """Mean of a table by (a, b) after one more mark of each class: left only (a is 0 then), right only, both."""
    a, b = chances[2] + chances[3], chances[1] + chances[3]
    return table[0] + b * (table[1] - table[0]), table[0] + a * (table[2] - table[0]), table[0]


def _product(left: tuple[float, float], right: tuple[float, float]) -> Table:
    return left[0] * right[0], left[0] * right[1], left[1] * right[0], left[1] * right[1]


def _mean(chances: Table, table: Table) -> float:
    return float(sum(map(mul, chances, table)))
