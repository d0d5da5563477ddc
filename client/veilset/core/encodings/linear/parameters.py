"""The linear encoding: a release is a uniformly drawn solution of the equations of the kept elements.

Public are the columns c, the planes b (q = 2^b), the band w and each digest's row of w coefficients over GF(2). Elements are
dropped with probability d by fresh coins; V is b vectors of c bits, uniform among all with row(x)·V = 0 for every kept x. A
reader says "member" if and only if row(x)·V = 0 in all planes: FN = d(1 - 1/q), FP = 1/q, ε-private for every hash (δ = 0).
Claim and proof: docs/privacy.md, section 19.

Planning. Around q = e^ε + 1 both error rates are least together; more planes buy fewer false positives for more elements
dropped. Everything else follows from the number of planes, so a search looks at 32 plans at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.decoder import Law
from veilset.core.encodings.interface import Digests, MemoryVector, Parameters, RandomBytes, Readings, Vector, pure
from veilset.core.encodings.linear.encode import encode
from veilset.core.encodings.linear.law import (
    COIN_SIDES,
    drop_threshold,
    estimate_overlap,
    expected_dependence,
    reading_law,
    tested_law,
)
from veilset.core.encodings.linear.rows import BAND, WORD_BITS, read, scalar_reader
from veilset.core.encodings.planning import Plan, PlanRequest, SmallestVector, evaluate
from veilset.core.estimates.results import Comparison, Overlap, SizeEstimate
from veilset.core.params import MAX_BITS, MAX_EPSILON, Adjacency, PrivacyParameters, check_integer
from veilset.errors import PoorUtility, Unsupported, must_be

MAX_PLANES = 32
SECTION_COLUMNS = 1 << 22
"""Columns of the longest section; 16 bytes for each are held while it is encoded."""

_OVERHEAD = 1.05
_DEVIATIONS = 4.0


@dataclass(frozen=True)
class LinearParameters(Parameters):
    """columns: c >= band; above 2^22 a multiple of `columns_step`, so that its ceil(c / 2^22) sections of equal length are whole
    words of 64. planes: b, in [1, 32], q = 2^b; c·b at most 2^40. band: w coefficients of a row, in [1, 128]; below 128 for
    tests only. drop_threshold: T in [1, 2^64 - 1]; a distinct digest is dropped with probability T/2^64.
    """

    encoding: ClassVar[str] = "linear"
    DIMENSIONS: ClassVar[Mapping[str, str]] = {
        "columns": "Columns of the system of equations: about as many elements as it can keep, and 5% more.",
        "band": "Coefficients of an element's equation.",
        "planes": "Solutions, one bit a column each: a non-member is answered yes once in 2^planes.",
    }

    BEYOND: ClassVar[str] = (
        "at 1.04 times as many 84% of the advantage is left, at 1.06 16%, at 1.10 nothing: all answers are yes"
    )

    GENERATIONS: ClassVar[frozenset[Adjacency]] = frozenset(Adjacency)

    columns: int
    band: int
    planes: int
    drop_threshold: int

    def __post_init__(self) -> None:
        check_integer("band", self.band, 1, BAND)
        check_integer("planes", self.planes, 1, MAX_PLANES)
        check_integer("columns", self.columns, self.band, MAX_BITS // self.planes)
        if self.columns % columns_step(self.columns):
            step = columns_step(self.columns)
            raise must_be("columns", f"a multiple of {step} at this number", self.columns)
        check_integer("drop_threshold", self.drop_threshold, 1, COIN_SIDES - 1)

    @classmethod
    def capacity_for(cls, size: int) -> int:
        """As `Parameters.capacity_for`: a quarter more, as a set that outgrows its capacity loses all answers."""
        return -(-size * 5 // 4)

    @classmethod
    def calibrate(cls, privacy: PrivacyParameters, dimensions: Mapping[str, int]) -> LinearParameters:
        """As `Parameters.calibrate`; band is 128 where it is missing. Only ``planes`` plays a part in the noise."""
        planes = check_integer("planes", dimensions.get("planes", 0), 1, MAX_PLANES)
        threshold = drop_threshold(privacy.epsilon, privacy.adjacency, planes, privacy.elements_per_user)
        if threshold >= COIN_SIDES:
            raise must_be("planes", f"fewer at epsilon {privacy.epsilon:g}: so many would drop every element", planes)
        return cls(dimensions.get("columns", 0), dimensions.get("band", 0) or BAND, planes, threshold)

    @classmethod
    def plan(cls, request: PlanRequest) -> Plan:
        return plan(request)

    @property
    def q(self) -> int:
        """2^planes."""
        return 1 << self.planes

    @cached_property
    def sections(self) -> int:
        """The number of sections: systems of equations, one after the other."""
        return -(-self.columns // SECTION_COLUMNS)

    @cached_property
    def section_columns(self) -> int:
        """Columns of each section."""
        return self.columns // self.sections

    @cached_property
    def words(self) -> int:
        """Words of 64 columns in one plane of the whole vector."""
        return -(-self.columns // WORD_BITS)

    @property
    def vector_bytes(self) -> int:
        """As `Parameters.vector_bytes`: every plane filled up to whole words by zeros."""
        return self.words * self.planes * (WORD_BITS // 8)

    @property
    def padding(self) -> bytes:
        """As `Parameters.padding`: what fills up each plane's last word."""
        used = self.columns % WORD_BITS
        word = ((1 << WORD_BITS) - (1 << used)).to_bytes(WORD_BITS // 8, "little") if used else b""
        return word * self.planes

    @property
    def drop_probability(self) -> float:
        """D = T/2^64, as the nearest float."""
        return self.drop_threshold / COIN_SIDES

    def charged(self, privacy: PrivacyParameters) -> PrivacyParameters:
        """As `Parameters.charged`: δ = 0, for any hash."""
        return pure(privacy)

    def check(self, privacy: PrivacyParameters) -> None:
        """As `Parameters.check`; the threshold is computed again."""
        needed = drop_threshold(privacy.epsilon, privacy.adjacency, self.planes, privacy.elements_per_user)
        if self.drop_threshold < needed:
            raise must_be("drop_threshold", f"at least {needed} for what is promised", self.drop_threshold)

    def resized(self, privacy: PrivacyParameters, *, made_for: int, capacity: int) -> LinearParameters:
        """As `Parameters.resized`: the same planes, columns for the capacity; ``made_for`` plays no part."""
        del made_for
        noise = self.calibrate(privacy, {"columns": self.columns, "planes": self.planes, "band": self.band})
        columns = min(columns_for(capacity, noise.drop_probability, self.band), longest(self.planes))
        return LinearParameters(columns, self.band, self.planes, noise.drop_threshold)

    def encode(self, chunks: Iterable[Digests], random_bytes: RandomBytes) -> Iterator[bytes]:
        """As `Parameters.encode`; in memory for one section. Raises InvalidInput for digests that do not rise strictly."""
        return encode(self, chunks, random_bytes)

    def read(self, vector: Vector, digests: Digests) -> Readings:
        """As `Parameters.read`: 1 where the row is orthogonal to all planes, else 0."""
        return read(self, vector, digests)

    def read_one(self, vector: MemoryVector, digest: int) -> int:
        """As `Parameters.read_one`; without numpy."""
        return scalar_reader(self)(vector.memory, digest)

    def law(self, vector: Vector) -> Law:
        """As `Parameters.law`: known beforehand, but for a vector that holds too much, which a self-test shows."""
        return tested_law(self, vector)

    def expected_law(self, size: int) -> Law:
        return reading_law(self, expected_dependence(self, size))

    def overlap(self, law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
        return estimate_overlap(law, found, confidence)

    def size(self, vector: MemoryVector, confidence: float) -> SizeEstimate:
        """As `Parameters.size`: a vector does not show it, as every solution is equally likely."""
        raise Unsupported(
            "a linear release does not show how many elements its set has; ask for the overlap with a list, or let the "
            "owner publish with a noisy count"
        )

    def compare(self, vectors: tuple[MemoryVector, MemoryVector], other: Parameters, confidence: float) -> Comparison:
        """As `Parameters.compare`: two solutions share nothing that two releases could be compared by."""
        raise Unsupported(
            "linear releases cannot be compared with each other; compare each with a list by overlap, or let both owners "
            "publish with the encoding bloom"
        )

    def facts(self) -> dict[str, int | float]:
        return {"drop_probability": self.drop_probability}

    def __str__(self) -> str:
        return f"{self.columns} columns, {self.planes} {'plane' if self.planes == 1 else 'planes'}, band {self.band}"


def columns_step(columns: int) -> int:
    """What a number of columns must be a multiple of."""
    sections = -(-columns // SECTION_COLUMNS)
    return sections * WORD_BITS if sections > 1 else 1


def longest(planes: int) -> int:
    """The most columns that so many planes can have."""
    most = MAX_BITS // planes
    return most // columns_step(most) * columns_step(most)


def columns_for(capacity: int, drop_probability: float, band: int) -> int:
    """The columns for ``capacity`` elements: 5% over the number that is kept, and what it scatters by, in whole words.

    1.05·n·(1-d) + 4·sqrt(n·d·(1-d)) + w. With a band of 128 the kept rows were independent in all trials up to 10^7.
    """
    kept = capacity * (1.0 - drop_probability)
    scatter = (kept * drop_probability) ** 0.5
    columns = int(_OVERHEAD * kept + _DEVIATIONS * scatter) + band
    step = max(columns_step(columns), WORD_BITS)
    return -(-columns // step) * step


def plan(request: PlanRequest) -> Plan:
    """The best plan within the size limit. Raises PoorUtility with what would do."""
    every = _plans(request)
    fitting = [found for found in every if 8 * found.bytes <= request.limit_bits]
    good = [found for found in fitting if found.advantage >= request.needed_advantage]
    if not good:
        raise _refusal(request, every)
    if isinstance(request.objective, SmallestVector):
        return min(good, key=lambda found: found.bytes)
    return max(good, key=lambda found: (request.merit_of(found), -found.bytes))


def _plans(request: PlanRequest) -> list[Plan]:
    """Every number of planes that keeps some elements and the objective's limit to an error rate, at any length."""
    found = []
    privacy = request.privacy
    for planes in range(1, MAX_PLANES + 1):
        threshold = drop_threshold(privacy.epsilon, privacy.adjacency, planes, privacy.elements_per_user)
        if threshold >= COIN_SIDES:
            break
        columns = columns_for(LinearParameters.capacity_for(request.size), threshold / COIN_SIDES, BAND)
        if columns > longest(planes):
            break
        try:
            found.append(evaluate(LinearParameters(columns, BAND, planes, threshold), request))
        except PoorUtility:
            continue
    return found


def _refusal(request: PlanRequest, every: list[Plan]) -> PoorUtility:
    """Why there is no plan, and the least that would do: a longer vector, or a larger ε."""
    good = [found for found in every if found.advantage >= request.needed_advantage]
    details: dict[str, object] = {"encoding": LinearParameters.encoding}
    if good:
        shortest = min(good, key=lambda found: found.bytes)
        details["needed_bytes"] = shortest.bytes
        way = f"it takes {shortest.bytes} bytes instead of {request.limit_bits // 8}"
    elif (epsilon := _needed_epsilon(request)) is not None:
        details["needed_epsilon"] = f"{epsilon:.4g}"
        way = f"it takes epsilon {epsilon:.4g} instead of {request.privacy.epsilon:g}"
    else:
        way = "no epsilon would do"
    return PoorUtility(f"no linear release for {request.size} elements reaches {request.objective}: {way}", **details)


def _needed_epsilon(request: PlanRequest) -> float | None:
    """The least ε, to 1%, at which a vector of any length would do; None up to the largest ε."""
    epsilon = request.privacy.epsilon
    while (epsilon := epsilon * 1.01) <= MAX_EPSILON:
        stronger = replace(request, privacy=replace(request.privacy, epsilon=epsilon))
        if any(found.advantage >= stronger.needed_advantage for found in _plans(stronger)):
            return epsilon
    return None
