"""From sorted digests to the noisy vector of a Bloom release, chunk by chunk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.hashing import positions
from veilset.core.encodings.bitset import count_ones, set_bits
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.encodings.bloom.response import perturb
from veilset.core.params import FilterParameters
from veilset.core.release.header import CHUNK_BYTES
from veilset_server.ports import KeyStream


class NoisyVector:
    """One draw of a Bloom release. sha256, ones: of its chunks, and of the vector before the noise (secret), once encoded."""

    def __init__(self, parameters: FilterParameters, threshold: int, stream: KeyStream) -> None:
        self._parameters = parameters
        self._threshold = threshold
        self._stream = stream
        self.sha256: list[bytes] = []
        self.ones = 0

    def encode(self, chunks: Iterator[NDArray[np.uint64]]) -> Iterator[bytes]:
        """The noisy vector in chunks of `CHUNK_BYTES`, from sorted distinct digests."""
        bits = self._parameters.bits
        for index, piece in enumerate(_vector_pieces(chunks, self._parameters)):
            self.ones += count_ones(piece)
            length = min(8 * len(piece), bits - 8 * CHUNK_BYTES * index)
            chunk = perturb(piece, length, self._threshold, self._stream).tobytes()
            self.sha256.append(hashlib.sha256(chunk).digest())
            yield chunk


def _vector_pieces(chunks: Iterator[NDArray[np.uint64]], parameters: FilterParameters) -> Iterator[NDArray[np.uint8]]:
    """The vector front to back for one position, as sorted digests have sorted positions; in memory for several."""
    if parameters.hashes > 1:
        whole = np.zeros(parameters.vector_bytes, dtype=np.uint8)
        for chunk in chunks:
            bloom.insert(whole, parameters, chunk)
        for start in range(0, len(whole), CHUNK_BYTES):
            yield whole[start : start + CHUNK_BYTES]
        return
    start, found = 0, np.empty(0, dtype=np.uint64)
    piece = np.zeros(min(CHUNK_BYTES, parameters.vector_bytes), dtype=np.uint8)
    for chunk in chunks:
        found = positions(chunk, parameters.bits, 1)[:, 0]
        while len(found):
            end = start + 8 * CHUNK_BYTES
            inside = int(np.searchsorted(found, np.uint64(end)))
            set_bits(piece, found[:inside] - np.uint64(start))
            found = found[inside:]
            if len(found):
                yield piece
                start = end
                piece = np.zeros(min(CHUNK_BYTES, parameters.vector_bytes - start // 8), dtype=np.uint8)
    while True:
        yield piece
        start += 8 * CHUNK_BYTES
        if start >= parameters.bits:
            return
        piece = np.zeros(min(CHUNK_BYTES, parameters.vector_bytes - start // 8), dtype=np.uint8)
