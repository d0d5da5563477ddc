"""The ones of one chunk of a vector in the shorter of two forms, so that many machines can exchange what they found.

uint32, shape (n,): their places within the chunk, rising. uint8, shape (c,): the packed chunk. The dtype tells which.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bitset import set_bits
from veilset.core.release.header import CHUNK_BYTES

ChunkBits = NDArray[np.uint32] | NDArray[np.uint8]

CHUNK_BITS = 8 * CHUNK_BYTES
_MOST_PLACES = CHUNK_BYTES // 4
"""As many places take as much room as the packed chunk."""


def split_positions(positions: NDArray[np.uint64]) -> Iterator[tuple[int, ChunkBits]]:
    """Positions in the whole vector (any shape, any order) by chunks: (index, ones), by rising index."""
    found = np.unique(positions)
    chunk = (found // np.uint64(CHUNK_BITS)).astype(np.int64)
    starts = np.flatnonzero(np.diff(chunk, prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(found)]):
        index = int(chunk[start])
        places = (found[start:end] - np.uint64(index * CHUNK_BITS)).astype(np.uint32)
        yield index, _shorter(places)


def unite(left: ChunkBits, right: ChunkBits) -> ChunkBits:
    """The ones of both. May change and return ``left``, as a running sum does."""
    if left.dtype == np.uint32 and right.dtype == np.uint32:
        return _shorter(np.union1d(left, right).astype(np.uint32, copy=False))
    if left.dtype == np.uint32:
        left, right = right, left
    packed = left if left.flags.writeable else left.copy()
    if right.dtype == np.uint32:
        set_bits(packed, right.astype(np.uint64))  # type: ignore[arg-type] # the dtype tells
    else:
        np.bitwise_or(packed, right, out=packed)
    return packed


def pack(ones: ChunkBits, length: int) -> bytes:
    """The packed chunk, ``length`` bytes long."""
    packed = _dense(ones) if ones.dtype == np.uint32 else ones
    return packed[:length].tobytes()


def _shorter(places: NDArray[np.uint32]) -> ChunkBits:
    return places if len(places) <= _MOST_PLACES else _dense(places)


def _dense(places: ChunkBits) -> NDArray[np.uint8]:
    packed = np.zeros(CHUNK_BYTES, dtype=np.uint8)
    set_bits(packed, places.astype(np.uint64))
    return packed
