"""From a promise to the drop threshold of a linear release, and what its readings are worth.

When an element joins, the probability of every vector is multiplied by a number in [d, d + (1-d)·q] (docs/privacy.md), so
ε-privacy under add-remove needs d >= e^-ε and d + (1-d)·q <= e^ε; under replace-one it needs (d + (1-d)·q)/d <= e^ε. A user of
u elements has ε/u for each. The threshold is computed in decimals that are rounded towards more noise; a coin compares whole
numbers only.

A non-member's row, or a dropped member's, is orthogonal to all planes with probability 1/q while it is independent of the kept
rows, and always once it depends on them. With the *dependence* r, the share of rows that depend on the kept ones,
    P(yes | non-member) = r + (1-r)/q,    P(no | member) = d·(1-r)·(1 - 1/q).
r is 0 within the capacity and rises to 1 within some per cent above it. A vector shows r by how it answers digests that are in
no set: `tested_law` asks for some, at no cost.

Of r listed elements, c of them in the set, T are answered yes. The answers are independent but for rows that meet, so T has the
mean c·TPR + (r-c)·FPR and the variance c·TPR·(1-TPR) + (r-c)·FPR·(1-FPR): that gives the overlap of a list.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.decoder import Law
from veilset.core.encodings.interface import Digests, MemoryVector, Vector
from veilset.core.estimates.intervals import BoundedTest, Spread
from veilset.core.estimates.results import Overlap
from veilset.core.params import Adjacency
from veilset.core.privacy.exact import decimal_digits

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters


COIN_SIDES = 1 << 64
"""A digest is dropped if and only if a uniform integer in [0, COIN_SIDES) is below the threshold."""

PROBES = 1 << 14
REMOTE_PROBES = 256
"""Digests of a self-test; over the network each is a request."""

SATURATED = 0.9
"""The dependence from which on a vector counts as one that shows nothing."""

_STEEPNESS = 180.0
_NO_DEPENDENCE = 0.965
_PROBE_STEP = np.uint64(0xD1B54A32D192ED03)
_DEVIATIONS = 5.2  # exceeded by chance once in 10^7
_FEW = 10.0
_LEAST_DEVIATION = 1e-6


def drop_threshold(epsilon: float, adjacency: Adjacency, planes: int, elements_per_user: int = 1) -> int:
    """T, the smallest threshold whose T/2^64 is not below the d that ε/u asks for with q = 2^planes; in [1, 2^64].

    add-remove: d = max(e^-ε, (q - e^ε)/(q - 1)). replace-one: d = q/(q + e^ε - 1). epsilon: in (0, 64]; the decimal that
    names it is what is charged, and what counts here.
    """
    q = 1 << planes
    with decimal_digits(100, ROUND_FLOOR):
        share = Decimal(repr(float(epsilon))) / elements_per_user
        growth = share.exp().next_minus()  # exp is correctly rounded, so its neighbour below is a bound
        total = q - 1 + growth
    with decimal_digits(100, ROUND_CEILING):
        drop = q / total if adjacency is Adjacency.REPLACE_ONE else max(1 / growth, (q - growth) / (q - 1))
        return min(math.ceil(drop * COIN_SIDES), COIN_SIDES)


def reading_law(parameters: LinearParameters, dependence: float = 0.0, probed: int = 0, yes: int = 0) -> Law:
    """The law of the readings 0 (no) and 1 (yes); probed, yes: of the self-test, where there was one."""
    q, d = parameters.q, parameters.drop_probability
    independent = (1.0 - dependence) * (1.0 - 1.0 / q)
    saturated = dependence >= SATURATED
    members, others = np.array([d * independent, 1.0 - d * independent]), np.array([independent, 1.0 - independent])
    scores = np.zeros(2) if saturated else np.array([math.log(d), math.log(members[1]) - math.log(others[1])])
    facts = {"measured_false_positive_rate": yes / probed} if probed else {}
    return Law(
        members,
        others,
        scores,
        certain=np.array([False, True]),
        groups=np.zeros(2, dtype=np.int64),
        saturated=saturated,
        names=("no", "yes"),
        facts=facts,
    )


def expected_dependence(parameters: LinearParameters, size: int) -> float:
    """R to expect of so many elements: a logistic curve of kept elements per column, fitted to builds of 10^4 to 4·10^6 columns.

    Within 0.05 of what was measured at 0.98, 0.99, 1.00, 1.01 and 1.02; nothing was seen below 0.965.
    """
    load = size * (1.0 - parameters.drop_probability) / parameters.columns
    if load <= _NO_DEPENDENCE:
        return 0.0
    return 1.0 / (1.0 + math.exp(-min(_STEEPNESS * (load - 1.0), 700.0)))


def tested_law(parameters: LinearParameters, vector: Vector) -> Law:
    """The law with the dependence that a self-test shows, or none where the answers are those of a vector within its capacity."""
    count = PROBES if isinstance(vector, MemoryVector) else REMOTE_PROBES
    yes = int(np.count_nonzero(parameters.read(vector, probes(count))))
    expected = count / parameters.q
    if yes <= expected + _DEVIATIONS * math.sqrt(expected) + _FEW:
        return reading_law(parameters, 0.0, count, yes)
    dependence = (yes / count - 1.0 / parameters.q) / (1.0 - 1.0 / parameters.q)
    return reading_law(parameters, dependence, count, yes)


def probes(count: int) -> Digests:
    """Digests that no element was asked for, evenly spread: multiples of an odd constant of 64 bits."""
    return np.arange(1, count + 1, dtype=np.uint64) * _PROBE_STEP


def estimate_overlap(law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
    """Common elements of a list and the set; found: how many of the list were answered no and yes, int64 (2,).

    A saturated vector shows nothing: the interval is [0, listed] then. Raises InvalidInput for a confidence out of range.
    """
    listed, yes = int(found.sum()), float(found[1])
    detected, mistaken = (0.0, 0.0) if law.saturated else (float(law.members[1]), float(law.others[1]))

    def spread(common: float) -> Spread:
        parts = [(common, detected), (listed - common, mistaken)]
        deviation = math.sqrt(sum(count * p * (1.0 - p) for count, p in parts)) + _LEAST_DEVIATION
        return Spread(deviation, sum(count * p * (1.0 - p) * (1.0 - 2.0 * p) for count, p in parts) / deviation**3)

    def mean(common: float) -> float:
        return common * detected + (listed - common) * mistaken

    test = BoundedTest(0.0 if law.saturated else yes, mean, spread, 0.0, float(listed), confidence)
    unbiased = (yes - listed * mistaken) / (detected - mistaken) if detected > mistaken else 0.0
    return Overlap.of(test, listed, unbiased)
