"""Bloom filters under randomized response: m bits, k positions an element, every bit flipped with one probability.

The mission's own mechanism (DPBloomfilter, arXiv:2502.00693): `calibration` turns a promise into the noise, `law` says
what readings mean, `vectors` builds and reads, `planning` searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom import comparison, overlap, vectors
from veilset.core.encodings.bloom.calibration import COIN_SIDES, calibrate
from veilset.core.encodings.bloom.comparison import size_from_ones
from veilset.core.encodings.bloom.law import expected_fill, expected_ones_fraction, per_bit_epsilon, reading_law
from veilset.core.encodings.bloom.response import last_byte_mask
from veilset.core.encodings.decoder import Law
from veilset.core.encodings.interface import Digests, MemoryVector, Parameters, RandomBytes, Readings, Vector, pure
from veilset.core.encodings.planning import Plan, PlanRequest
from veilset.core.estimates.results import Comparison, Overlap, SizeEstimate
from veilset.core.params import MAX_BITS, MAX_HASHES, MIN_BITS, PrivacyParameters, check_integer
from veilset.errors import InvalidInput, must_be


@dataclass(frozen=True)
class BloomParameters(Parameters):
    """bits: length m of the vector, in [8, 2^40]. hashes: positions k of an element, in [1, 32]. flip_threshold: T in
    [1, 2^63], a bit is flipped with probability T/2^64. changed_bits: N, the changed bits that T was calibrated for."""

    encoding: ClassVar[str] = "bloom"
    DIMENSIONS: ClassVar[Mapping[str, str]] = {
        "bits": "Length of the vector, in bits.",
        "hashes": "Bits that each element sets.",
    }

    BEYOND: ClassVar[str] = "beyond it false positives rise slowly"

    bits: int
    hashes: int
    flip_threshold: int
    changed_bits: int

    def __post_init__(self) -> None:
        check_integer("bits", self.bits, MIN_BITS, MAX_BITS)
        check_integer("hashes", self.hashes, 1, MAX_HASHES)
        check_integer("flip_threshold", self.flip_threshold, 1, COIN_SIDES // 2)
        check_integer("changed_bits", self.changed_bits, 1, (1 << 32) - 1)

    @classmethod
    def calibrate(cls, privacy: PrivacyParameters, dimensions: Mapping[str, int]) -> BloomParameters:
        """As `Parameters.calibrate`; `veilset.core.encodings.bloom.calibration` has the rules."""
        bits, hashes = dimensions.get("bits", 0), dimensions.get("hashes", 0)
        if bool(bits) != bool(hashes):
            raise InvalidInput(
                missing := "bits" if hashes else "hashes",
                f"{missing} is missing: give both bits and hashes, or neither",
            )
        response = calibrate(bits, hashes, privacy)
        return cls(bits, hashes, response.threshold, response.changed_bits)

    @classmethod
    def plan(cls, request: PlanRequest) -> Plan:
        from veilset.core.encodings.bloom.planner import plan  # it makes these parameters

        return plan(request)

    @property
    def vector_bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def padding(self) -> bytes:
        return bytes([0xFF & ~last_byte_mask(self.bits)])

    @property
    def flip_probability(self) -> float:
        """T/2^64, as the nearest float."""
        return self.flip_threshold / COIN_SIDES

    def charged(self, privacy: PrivacyParameters) -> PrivacyParameters:
        """As `Parameters.charged`: pure where the noise is enough for the most bits that a user can change."""
        certain = pure(privacy)
        enough = calibrate(self.bits, self.hashes, certain).threshold
        return certain if self.flip_threshold >= enough else privacy

    def check(self, privacy: PrivacyParameters) -> None:
        """As `Parameters.check`; the calibration is computed again."""
        if self.flip_threshold < (needed := calibrate(self.bits, self.hashes, privacy).threshold):
            raise must_be("flip_threshold", f"at least {needed} for what is promised", self.flip_threshold)

    def resized(self, privacy: PrivacyParameters, *, made_for: int, capacity: int) -> BloomParameters:
        """As `Parameters.resized`: as many bits an element as before."""
        bits = min(max(self.bits * capacity // made_for, MIN_BITS), MAX_BITS)
        return self.calibrate(privacy, {"bits": bits, "hashes": self.hashes})

    def encode(self, chunks: Iterable[Digests], random_bytes: RandomBytes) -> Iterator[bytes]:
        """As `Parameters.encode`; in bounded memory with one position an element, else the whole vector is in memory."""
        return vectors.encode(self.bits, self.hashes, self.flip_threshold, chunks, random_bytes)

    def read(self, vector: Vector, digests: Digests) -> Readings:
        """As `Parameters.read`: d·(k + 1) + t for t ones at d distinct positions."""
        return vectors.read(self.bits, self.hashes, vector, digests)

    def read_one(self, vector: MemoryVector, digest: int) -> int:
        """As `Parameters.read_one`; without numpy."""
        return vectors.read_one(self.bits, self.hashes, vector.memory, digest)

    def law(self, vector: Vector) -> Law:
        """As `Parameters.law`: from the share of ones."""
        return reading_law(self.bits, self.hashes, self.flip_probability, vector.count_ones() / self.bits)

    def expected_law(self, size: int) -> Law:
        fill = expected_fill(size, self.bits, self.hashes)
        ones = float(expected_ones_fraction(fill, self.flip_probability))
        return reading_law(self.bits, self.hashes, self.flip_probability, ones)

    def overlap(self, law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
        reading = overlap.ListReading.of(self.bits, self.hashes, law, found)
        return overlap.estimate_overlap(self.bits, self.hashes, self.flip_probability, reading, confidence)

    def size(self, vector: MemoryVector, confidence: float) -> SizeEstimate:
        return size_from_ones(self.bits, self.hashes, self.flip_probability, vector.count_ones(), confidence)

    def compare(self, vectors: tuple[MemoryVector, MemoryVector], other: Parameters, confidence: float) -> Comparison:
        if not isinstance(other, BloomParameters) or other.dimensions() != self.dimensions():
            raise ValueError("other: has to have the same dimensions")
        counts = comparison.count_joint_bits(vectors[0].array, vectors[1].array)
        flips = (self.flip_probability, other.flip_probability)
        return comparison.PairedReleases(self.bits, self.hashes, flips, counts, confidence).compare()

    def facts(self) -> dict[str, int | float]:
        """As `Parameters.facts`: ε of one bit, and the chance that it is flipped."""
        return {"epsilon0": per_bit_epsilon(self.flip_probability), "flip_probability": self.flip_probability}

    def __str__(self) -> str:
        return f"{self.bits} bits, {self.hashes} {'hash' if self.hashes == 1 else 'hashes'}"
