"""What a reading of a linear vector is worth, before a release and from the release alone.

A non-member's row, or a dropped member's, is orthogonal to all planes with probability 1/q while it is independent of the kept
rows, and always once it depends on them. With the *dependence* r, the share of rows that depend on the kept ones,
    P(yes | non-member) = r + (1-r)/q,    P(no | member) = d·(1-r)·(1 - 1/q).
r is 0 within the capacity and rises to 1 within some per cent above it. A vector shows r by how it answers digests that are in
no set: `tested_law` asks for some, at no cost.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from veilset.core.encodings.decoder import Law
from veilset.core.encodings.interface import Digests, MemoryVector, Vector

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters

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
