"""Cells: an element sets one byte of a table to 1; every byte is then swapped with probability T/2^64.

One user changes at most elements_per_user bytes (replace-one: twice as many), so ε is shared among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.decoder import Law
from veilset.core.encodings.interface import (
    CHUNK_BYTES,
    Digests,
    MemoryVector,
    Parameters,
    RandomBytes,
    Readings,
    Vector,
    pure,
)
from veilset.core.encodings.planning import Plan, PlanRequest, evaluate
from veilset.core.estimates.results import Comparison, Overlap, SizeEstimate
from veilset.core.params import Adjacency, PrivacyParameters, check_integer
from veilset.errors import Unsupported, must_be

SIDES = 1 << 64


@dataclass(frozen=True)
class CellParameters(Parameters):
    """cells: bytes of the vector. swap_threshold: T, in [1, 2^63]."""

    encoding: ClassVar[str] = "cells"
    DIMENSIONS: ClassVar[Mapping[str, str]] = {"cells": "Bytes of the table."}

    cells: int
    swap_threshold: int

    def __post_init__(self) -> None:
        check_integer("cells", self.cells, 8, 1 << 30)
        check_integer("swap_threshold", self.swap_threshold, 1, SIDES // 2)

    @classmethod
    def calibrate(cls, privacy: PrivacyParameters, dimensions: Mapping[str, int]) -> CellParameters:
        changed = privacy.elements_per_user * (2 if privacy.adjacency is Adjacency.REPLACE_ONE else 1)
        return cls(dimensions.get("cells", 0), math.ceil(SIDES / (1 + math.exp(privacy.epsilon / changed))) + 1)

    @classmethod
    def plan(cls, request: PlanRequest) -> Plan:
        return evaluate(cls.calibrate(request.privacy, {"cells": 8 * request.size}), request)

    @property
    def vector_bytes(self) -> int:
        return self.cells

    def charged(self, privacy: PrivacyParameters) -> PrivacyParameters:
        return pure(privacy)

    def check(self, privacy: PrivacyParameters) -> None:
        if self.swap_threshold < (needed := self.calibrate(privacy, self.dimensions()).swap_threshold):
            raise must_be("swap_threshold", f"at least {needed}", self.swap_threshold)

    def resized(self, privacy: PrivacyParameters, *, made_for: int, capacity: int) -> CellParameters:
        return self.calibrate(privacy, {"cells": self.cells * capacity // made_for})

    def encode(self, chunks: Iterable[Digests], random_bytes: RandomBytes) -> Iterator[bytes]:
        table = np.zeros(self.cells, dtype=np.uint8)
        for digests in chunks:
            table[self._places(digests)] = 1
        for start in range(0, self.cells, CHUNK_BYTES):
            piece = table[start : start + CHUNK_BYTES]
            drawn = np.frombuffer(random_bytes(8 * len(piece)), dtype="<u8")
            yield (piece ^ (drawn < np.uint64(self.swap_threshold))).astype(np.uint8).tobytes()

    def read(self, vector: Vector, digests: Digests) -> Readings:
        return vector.fetch(self._places(digests), 1)[:, 0]

    def law(self, vector: Vector) -> Law:
        return self._law(vector.count_ones() / self.cells)

    def expected_law(self, size: int) -> Law:
        swap = self.swap_threshold / SIDES
        return self._law(swap + (1 - 2 * swap) * -math.expm1(size * math.log1p(-1 / self.cells)))

    def overlap(self, law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
        asked, yes = int(found.sum()), int(found[1])
        best = (yes - asked * law.others[1]) / (law.members[1] - law.others[1])
        return Overlap(min(max(best, 0.0), asked), 0.0, asked, confidence, asked, best)

    def size(self, vector: MemoryVector, confidence: float) -> SizeEstimate:
        raise Unsupported("cells do not show the size")

    def compare(self, vectors: tuple[MemoryVector, MemoryVector], other: Parameters, confidence: float) -> Comparison:
        raise Unsupported("cells are not compared")

    def facts(self) -> dict[str, int | float]:
        return {"swap_probability": self.swap_threshold / SIDES}

    def __str__(self) -> str:
        return f"{self.cells} cells"

    def _places(self, digests: Digests) -> NDArray[np.int64]:
        return (digests % np.uint64(self.cells)).astype(np.int64)

    def _law(self, ones: float) -> Law:
        swap = self.swap_threshold / SIDES
        members, others = np.array([swap, 1 - swap]), np.array([1 - ones, ones])
        certain, groups = np.array([False, True]), np.zeros(2, dtype=np.int64)
        return Law(members, others, np.log(members / others), certain, groups, names=("no", "yes"))
