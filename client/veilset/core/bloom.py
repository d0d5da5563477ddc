"""The unperturbed Bloom filter, on packed vectors that the caller owns (memory or a mapped file)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.bitset import locate, test_bits
from veilset.core.hashing import positions
from veilset.core.params import FilterParameters

CHUNK = 1 << 16


def insert(vector: NDArray[np.uint8], parameters: FilterParameters, hashed: NDArray[np.uint64]) -> int:
    """Insert digests of shape (n, 2) into a packed vector, in place.

    Returns how many of them, taken one after the other, set at least one new bit. Such an element was not in the set
    before, so the sum over all inserts never exceeds the number of distinct elements, in whatever order, however often
    an element comes, and whatever bits a crash left set.
    """
    new = 0
    for start in range(0, len(hashed), CHUNK):
        found = positions(hashed[start : start + CHUNK], parameters.bits, parameters.hashes)
        new += _insert_positions(vector, found)
    return new


def _insert_positions(vector: NDArray[np.uint8], found: NDArray[np.uint64]) -> int:
    """The same work whatever the vector holds: a producer who times its own upload must not learn who is in the set."""
    flat = found.ravel()
    byte, mask = locate(flat)
    fresh = (vector[byte] & mask) == 0
    np.bitwise_or.at(vector, byte, mask)
    # Of the draws that hit the same empty position the first one sets it.
    _, first = np.unique(flat, return_index=True)
    bits_set = np.bincount(first // found.shape[1], weights=fresh[first])  # by each element
    return int(np.count_nonzero(bits_set))


def contains(vector: NDArray[np.uint8], parameters: FilterParameters, hashed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether all positions of each digest are ones; returns bool, shape (n,)."""
    return np.asarray(test_bits(vector, positions(hashed, parameters.bits, parameters.hashes)).all(axis=1))
