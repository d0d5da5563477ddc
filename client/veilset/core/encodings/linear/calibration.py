"""From a promise to the drop threshold of a linear release.

When an element joins, the probability of every vector is multiplied by a number in [d, d + (1-d)·q] (docs/privacy.md), so
ε-privacy under add-remove needs d >= e^-ε and d + (1-d)·q <= e^ε; under replace-one it needs (d + (1-d)·q)/d <= e^ε. A user of
u elements has ε/u for each. The threshold is computed in decimals that are rounded towards more noise; a coin compares whole
numbers only.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from veilset.core.params import Adjacency
from veilset.core.privacy.exact import decimal_digits

COIN_SIDES = 1 << 64
"""A digest is dropped if and only if a uniform integer in [0, COIN_SIDES) is below the threshold."""


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
