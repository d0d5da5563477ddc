"""What every encoding provides: one frozen record of public integers that plans, encodes, reads and explains a noisy vector.

A family of vectors is a folder beside this file with one subclass of `Parameters`, and a line in `veilset.core.encodings`. The
service, the header, the readers and the command line use this interface only. A *reading* is a small integer that an element
finds in a vector; what readings mean is their `Law`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from veilset.core.params import Adjacency, Calibration, PrivacyParameters

if TYPE_CHECKING:
    from veilset.core.encodings.decoder import Law
    from veilset.core.encodings.planning import Plan, PlanRequest
    from veilset.core.estimates.results import Comparison, Overlap, SizeEstimate

CHUNK_BYTES = 1 << 20
"""Length of every piece of a vector but the last: as it is encoded, stored, hashed and fetched."""

RandomBytes = Callable[[int], bytes | bytearray | memoryview]
"""The next n bytes of a cryptographic stream."""

Digests = NDArray[np.uint64]
Readings = NDArray[np.integer[Any]]


class Vector(Protocol):
    """A noisy vector, in memory or in Redis."""

    def fetch(self, offsets: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """The ``length`` bytes from each offset on; uint8 of shape offsets.shape + (length,). All lie within the vector."""
        ...

    def count_ones(self) -> int:
        """The number of ones in the whole vector."""
        ...


class MemoryVector:
    """A packed vector in memory; read-only. Bit j is bit 7 - (j mod 8) of byte j // 8, as in np.packbits and Redis."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.array = array
        self.memory = array.data

    def fetch(self, offsets: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        return np.asarray(sliding_window_view(self.array, length)[offsets])

    def count_ones(self) -> int:
        return count_ones(self.array)


def count_ones(vector: NDArray[np.uint8], chunk_bytes: int = CHUNK_BYTES) -> int:
    """Number of ones of a packed vector, counted in pieces, so that a mapped vector is not copied."""
    return sum(
        int(np.bitwise_count(vector[start : start + chunk_bytes]).sum(dtype=np.int64))
        for start in range(0, len(vector), chunk_bytes)
    )


class Parameters(ABC):
    """The public parameters of one encoding's vectors, noise included; a frozen dataclass of integers in every family.

    Its fields have the names of its message in parameters.proto. An owner may choose those in DIMENSIONS; the others
    are the noise, which follows from the dimensions and the promise.
    """

    encoding: ClassVar[str]
    """The family's name, also that of its message in the contract's oneof."""

    DIMENSIONS: ClassVar[Mapping[str, str]]
    """Name → one line of help, for each field that an owner may choose."""

    BEYOND: ClassVar[str]
    """What happens to the answers when a set outgrows the capacity, in a phrase."""

    GENERATIONS: ClassVar[frozenset[Adjacency]] = frozenset({Adjacency.ADD_REMOVE})
    """The relations under which a base and its increments together keep the promise of the base (docs/privacy.md, 18)."""

    @classmethod
    def capacity_for(cls, size: int) -> int:
        """The number of elements that a vector is made for if ``size`` are expected."""
        return size

    @classmethod
    @abstractmethod
    def calibrate(cls, privacy: PrivacyParameters, dimensions: Mapping[str, int]) -> Self:
        """The parameters of the least noise that keeps the promise. Raises InvalidInput naming a dimension that is missing
        or out of range."""

    @classmethod
    @abstractmethod
    def plan(cls, request: PlanRequest) -> Plan:
        """The best parameters for a request. Raises InvalidInput, and PoorUtility with a setting that would work."""

    @property
    @abstractmethod
    def vector_bytes(self) -> int:
        """Length of the packed vector."""

    @property
    def padding(self) -> bytes:
        """A mask of the vector's last bytes: the bits that are 0 in every vector."""
        return b""

    @abstractmethod
    def charged(self, privacy: PrivacyParameters) -> PrivacyParameters:
        """The promise that a release with these parameters keeps, which is charged and stated: ``privacy`` as asked
        for, or `pure` of it where it holds with δ = 0 for any hash."""

    @abstractmethod
    def check(self, privacy: PrivacyParameters) -> None:
        """Raise InvalidInput, naming the field, if these parameters have less noise than the promise needs."""

    @abstractmethod
    def resized(self, privacy: PrivacyParameters, *, made_for: int, capacity: int) -> Self:
        """Parameters of about the same rates for another capacity than these were ``made_for``; never refuses."""

    @abstractmethod
    def encode(self, chunks: Iterable[Digests], random_bytes: RandomBytes) -> Iterator[bytes]:
        """The noisy vector in pieces of CHUNK_BYTES, the last one shorter.

        chunks: the distinct digests of the set, strictly rising over all chunks. random_bytes: fresh for every release.
        """

    @abstractmethod
    def read(self, vector: Vector, digests: Digests) -> Readings:
        """The reading of each digest of shape (n,); integers of shape (n,)."""

    def read_one(self, vector: MemoryVector, digest: int) -> int:
        """The reading of one digest; families may override it with something faster."""
        return int(self.read(vector, np.array([digest], dtype=np.uint64))[0])

    @abstractmethod
    def law(self, vector: Vector) -> Law:
        """The law of readings, from the vector alone."""

    @abstractmethod
    def expected_law(self, size: int) -> Law:
        """The expected law of readings of a vector that holds ``size`` elements."""

    @abstractmethod
    def overlap(self, law: Law, found: NDArray[np.int64], confidence: float) -> Overlap:
        """How many elements of a list are in the set. found: how often each reading occurred, int64 (readings,)."""

    @abstractmethod
    def size(self, vector: MemoryVector, confidence: float) -> SizeEstimate:
        """How many elements the set has. Raises Unsupported, with what else to do, where a vector does not show it."""

    @abstractmethod
    def compare(self, vectors: tuple[MemoryVector, MemoryVector], other: Parameters, confidence: float) -> Comparison:
        """Two releases of equal dimensions compared, this one's vector first. Raises Unsupported as `size` does."""

    @abstractmethod
    def facts(self) -> dict[str, int | float]:
        """Further values to show, such as the chance that a bit is flipped; name → value."""

    @abstractmethod
    def __str__(self) -> str:
        """The dimensions, in a phrase."""

    def fields(self) -> dict[str, int]:
        """All fields, dimensions first; name → value."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type] # dataclasses

    def dimensions(self) -> dict[str, int]:
        """The fields that an owner may choose; name → value."""
        return {name: value for name, value in self.fields().items() if name in self.DIMENSIONS}


def pure(privacy: PrivacyParameters) -> PrivacyParameters:
    """The promise with δ = 0 and without assumptions on the hash; the record itself sets delta to 0 and min_size to 1."""
    return replace(privacy, calibration=Calibration.WORST_CASE)
