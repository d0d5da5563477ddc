"""Part of a set's raw vector, built outside the service: by one of many machines, or from one of many files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilset._input.element_digests import digest_batches
from veilset.core.elements.keys import check_key
from veilset.core.elements.normalization import Element
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.params import FilterParameters, Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput


class VectorChunks(Protocol):
    """What `Service.merge_vector` sends: chunks of a packed vector, and what it was built with."""

    @property
    def filter(self) -> FilterParameters:
        """Shape and hashing; has to be the set's."""

    @property
    def normalization(self) -> Normalization:
        """What was done to elements before hashing; has to be the set's."""

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(index, bytes) by rising index: the bytes from index · `CHUNK_BYTES` on, that many or to the vector's end.

        A chunk without ones may be left out.
        """


class PartialVector:
    """The Bloom filter of some elements, bits and all, without noise: as secret as the elements themselves.

    filter, normalization: of the set that it will be merged into (`Service.get_set`). key: the secret of a keyed scheme.
    Holds m/8 bytes, of which those never touched cost nothing on most systems. Not to be shared between threads.
    """

    def __init__(
        self,
        filter: FilterParameters,  # noqa: A002 - the set's word for it
        normalization: Normalization = Normalization.NONE,
        *,
        key: bytes | None = None,
    ) -> None:
        check_key(filter, key, "the set")
        self.filter = filter
        self.normalization = normalization
        self._key = key
        self._vector = np.zeros(filter.vector_bytes, dtype=np.uint8)

    def add(self, elements: Iterable[Element]) -> int:
        """Insert elements (str or bytes, or a column of them); returns how many, duplicates included.

        Raises InvalidInput for what is no element; those before it are in then.
        """
        count = 0
        for hashed in digest_batches(elements, self.filter, self.normalization, self._key):
            bloom.insert(self._vector, self.filter, hashed)
            count += len(hashed)
        return count

    def unite(self, other: PartialVector) -> None:
        """Take over all elements of another part. Raises InvalidInput unless it was built with the same parameters."""
        if (other.filter, other.normalization) != (self.filter, self.normalization):
            raise InvalidInput("other", "built with the same filter parameters and normalization")
        bloom.unite(self._vector, 0, other._vector)

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The chunks that hold ones, as `VectorChunks` has them."""
        for index, start in enumerate(range(0, len(self._vector), CHUNK_BYTES)):
            piece: NDArray[np.uint8] = self._vector[start : start + CHUNK_BYTES]
            if piece.any():
                yield index, piece.tobytes()
