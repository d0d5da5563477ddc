"""The unperturbed Bloom filter, on packed vectors that the caller owns (memory or a mapped file)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.elements.hashing import positions
from veilset.core.encodings.bitset import locate, test_bits
from veilset.core.params import FilterParameters

CHUNK = 1 << 16
_DRAW_BITS = np.uint64(21)  # of the number of a draw: at most CHUNK · MAX_HASHES of them


def insert(vector: NDArray[np.uint8], parameters: FilterParameters, hashed: NDArray[np.uint64]) -> int:
    """Insert digests of shape (n,) into a packed vector, in place.

    Returns how many of them, taken one after the other, set at least one new bit. Such an element was not in the set
    before, so the sum over all inserts never exceeds the number of distinct elements, in whatever order, however often
    an element comes, and whatever bits a crash left set. Raises ValueError for a vector of the wrong length.
    """
    if len(vector) != parameters.vector_bytes:
        raise ValueError(f"vector: {len(vector)} bytes long, has to be {parameters.vector_bytes}")
    kernels = compiled.kernels()  # loaded by whoever knows of much work to come, never by what comes: see below
    if kernels is not None:
        return int(kernels.filter.insert(vector, read_only(hashed), parameters.bits, parameters.hashes))
    new = 0
    for start in range(0, len(hashed), CHUNK):
        found = positions(hashed[start : start + CHUNK], parameters.bits, parameters.hashes)
        new += _insert_positions(vector, found)
    return new


def _insert_positions(vector: NDArray[np.uint8], found: NDArray[np.uint64]) -> int:
    """The same work whatever the vector holds: a producer who times its own upload must not learn who is in the set.

    Nor how much others sent: so it does not depend on that either when the kernel that does the same is loaded.
    """
    flat = found.ravel()
    byte, mask = locate(flat)
    fresh = (vector[byte] & mask) == 0
    np.bitwise_or.at(vector, byte, mask)
    # Of the draws that hit the same empty position the first one sets it. Positions are below 2^40, so a position and the
    # number of its draw fit into one integer, and integers sort several times faster than indexes.
    order = np.sort((flat << _DRAW_BITS) | np.arange(len(flat), dtype=np.uint64))
    first = np.ones(len(flat), dtype=np.bool_)
    np.not_equal(order[1:] >> _DRAW_BITS, order[:-1] >> _DRAW_BITS, out=first[1:])
    draws = (order & ((np.uint64(1) << _DRAW_BITS) - np.uint64(1))).astype(np.intp)
    bits_set = np.bincount(draws // found.shape[1], weights=first & fresh[draws])  # by each element
    return int(np.count_nonzero(bits_set))


def unite(vector: NDArray[np.uint8], start: int, piece: NDArray[np.uint8]) -> None:
    """OR a piece of another packed vector of the same parameters into the bytes from ``start`` on, in place.

    The union of two sets' filters is the OR of their vectors.
    """
    place = vector[start : start + len(piece)]
    np.bitwise_or(place, piece, out=place)


def contains(vector: NDArray[np.uint8], parameters: FilterParameters, hashed: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether all positions of each digest are ones; returns bool, shape (n,)."""
    return np.asarray(test_bits(vector, positions(hashed, parameters.bits, parameters.hashes)).all(axis=1))
