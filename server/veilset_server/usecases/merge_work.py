"""What an accepted upload sets in the raw vector: the bits of its elements, or a partial vector's ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.elements.hashing import positions
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.params import FilterParameters
from veilset_server.ports import VECTOR_CHUNK_BYTES, UploadSpool, VectorSpool

LONG_BITS = 1 << 25
"""From this length on the compiled kernels are worth loading. The length is public; by how many elements came, the moment of
loading would tell every producer of the others' uploads."""


class MergeWork(Protocol):
    """One accepted upload, ready to be merged. May be repeated, as it only ever sets bits."""

    @property
    def positions(self) -> int | None:
        """At most how many bits it sets; None if `touched` need not look at them."""

    def touched(self) -> Collection[int]:
        """The chunks of the vector in which it has bits."""

    def or_into(self, vector: NDArray[np.uint8]) -> int:
        """Set the bits; returns a lower bound on the elements that are new. The same work whatever the vector holds."""

    def close(self) -> None:
        """Let go of the spool."""


class ElementWork:
    """The digests of an upload."""

    def __init__(self, spool: UploadSpool, parameters: FilterParameters) -> None:
        self._spool = spool
        self._parameters = parameters

    @property
    def positions(self) -> int:
        return self._spool.elements * self._parameters.hashes

    def touched(self) -> Collection[int]:
        chunks: set[int] = set()
        bits = np.uint64(8 * VECTOR_CHUNK_BYTES)
        for hashed in self._spool.read():
            found = positions(hashed, self._parameters.bits, self._parameters.hashes)
            chunks.update(np.unique(found // bits).tolist())
        return chunks

    def or_into(self, vector: NDArray[np.uint8]) -> int:
        if self._parameters.bits >= LONG_BITS:
            compiled.load()
        return sum(bloom.insert(vector, self._parameters, hashed) for hashed in self._spool.read())

    def close(self) -> None:
        self._spool.close()


class VectorWork:
    """The chunks of a partial vector.

    Its elements are not counted: a promised min_size is proved by the ones of the whole vector, of which an element sets at
    most k however it came.
    """

    positions = None

    def __init__(self, spool: VectorSpool) -> None:
        self._spool = spool

    def touched(self) -> Collection[int]:
        return self._spool.indexes

    def or_into(self, vector: NDArray[np.uint8]) -> int:
        for start, piece in self._spool.read():
            bloom.unite(vector, start, piece)
        return 0

    def close(self) -> None:
        self._spool.close()
