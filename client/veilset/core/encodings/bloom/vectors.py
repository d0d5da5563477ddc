"""Bloom vectors: the k positions of a digest, building the noisy vector, and reading it.

The positions of an element are independent and uniform in the model that the W bound needs, digest and finaliser together
idealised as a random function (docs/privacy.md, section 2). Bit j of a vector is bit 7 - (j mod 8) of byte j // 8, the order of
np.packbits and of Redis' GETBIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.encodings.bloom.response import perturb
from veilset.core.encodings.interface import CHUNK_BYTES, Digests, MemoryVector, RandomBytes, Vector
from veilset.errors import must_be

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
STEP = 0x9E3779B97F4A7C15

_THREE = np.uint64(3)
_SEVEN = np.uint64(7)
_BATCH = 1 << 16
_MASK = (1 << 64) - 1
_SAVED_PER_POSITION = 20e-9


def positions(hashed: NDArray[np.uint64], bits: int, hashes: int) -> NDArray[np.uint64]:
    """Positions of digests of shape (n,): shape (n, hashes), dtype uint64, each in [0, bits), bits ≤ 2^40.

    Position 0 is floor(h·bits / 2^64), so sorted digests have it sorted; for i in 1 … hashes-1 it is floor(z·bits / 2^64) with z
    the splitmix64 finaliser of h + i·0x9e3779b97f4a7c15 mod 2^64.
    """
    found = np.empty((len(hashed), hashes), dtype=np.uint64)
    found[:, 0] = _scale(hashed, bits)
    for i in range(1, hashes):
        found[:, i] = _scale(_splitmix64(hashed + np.uint64(i * STEP % 2**64)), bits)
    return found


def _splitmix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014), a bijection of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _scale(z: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """floor(z·bits / 2^64) in 64-bit pieces: no partial sum below reaches 2^64 while bits ≤ 2^40."""
    z_high, z_low = z >> _32, z & _LOW32
    m_high, m_low = np.uint64(bits >> 32), np.uint64(bits & 0xFFFFFFFF)
    middle = z_high * m_low + ((z_low * m_low) >> _32)
    if not m_high:
        return np.asarray(middle >> _32)
    carry = z_low * m_high + (middle & _LOW32)
    return np.asarray(z_high * m_high + (middle >> _32) + (carry >> _32))


def locate(positions: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.uint8]]:
    """Byte index and one-bit mask of each position; both have the shape of ``positions``."""
    byte = (positions >> _THREE).astype(np.intp)
    mask = np.right_shift(np.uint8(0x80), (positions & _SEVEN).astype(np.uint8))
    return byte, mask


def set_bits(vector: NDArray[np.uint8], positions: NDArray[np.uint64]) -> None:
    """Set the bits at ``positions`` (any shape) of a packed vector to one, in place."""
    byte, mask = locate(positions)
    np.bitwise_or.at(vector, byte.ravel(), mask.ravel())


def test_bits(vector: NDArray[np.uint8], positions: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Read the bits at ``positions``; returns bool of the same shape."""
    byte, mask = locate(positions)
    return np.asarray((vector[byte] & mask) != 0)


def encode(
    bits: int, hashes: int, flip_threshold: int, chunks: Iterable[Digests], random_bytes: RandomBytes
) -> Iterator[bytes]:
    """The noisy vector of the digests, in pieces of CHUNK_BYTES."""
    start = 0
    for piece in _raw_pieces(bits, hashes, chunks):
        yield perturb(piece, min(8 * len(piece), bits - start), flip_threshold, random_bytes).tobytes()
        start += 8 * CHUNK_BYTES


def _raw_pieces(bits: int, hashes: int, chunks: Iterable[Digests]) -> Iterator[NDArray[np.uint8]]:
    """The vector without noise, front to back: as sorted digests have their first position sorted, one piece at a time where
    that is the only one; in memory for several."""
    length = (bits + 7) // 8
    if hashes > 1:
        whole = np.zeros(length, dtype=np.uint8)
        for chunk in chunks:
            insert(whole, bits, hashes, chunk)
        yield from (whole[start : start + CHUNK_BYTES] for start in range(0, length, CHUNK_BYTES))
        return
    sizes = (min(CHUNK_BYTES, length - start) for start in range(0, length, CHUNK_BYTES))
    start, piece = 0, np.zeros(next(sizes), dtype=np.uint8)
    for chunk in chunks:
        found = positions(chunk, bits, 1)[:, 0]
        while len(found):
            inside = int(np.searchsorted(found, np.uint64(start + 8 * CHUNK_BYTES)))
            set_bits(piece, found[:inside] - np.uint64(start))
            found = found[inside:]
            if len(found):
                yield piece
                start, piece = start + 8 * CHUNK_BYTES, np.zeros(next(sizes), dtype=np.uint8)
    yield piece
    yield from (np.zeros(size, dtype=np.uint8) for size in sizes)


def insert(vector: NDArray[np.uint8], bits: int, hashes: int, digests: Digests) -> None:
    """Set the positions of digests in a packed vector, in place. Raises ValueError for a vector of the wrong length."""
    _check(vector, bits)
    kernels = compiled.kernels(_SAVED_PER_POSITION * len(digests) * hashes)
    if kernels is not None:
        kernels.bloom.insert(vector, read_only(digests), bits, hashes)
        return
    for start in range(0, len(digests), _BATCH):
        set_bits(vector, positions(digests[start : start + _BATCH], bits, hashes))


def read(bits: int, hashes: int, vector: Vector, digests: Digests) -> NDArray[np.int64]:
    """d·(k + 1) + t for t ones at the d distinct positions of each digest; int64 (n,)."""
    ones, distinct = np.empty(len(digests), dtype=np.int64), np.empty(len(digests), dtype=np.int64)
    kernels = None
    if isinstance(vector, MemoryVector):
        kernels = compiled.kernels(_SAVED_PER_POSITION * len(digests) * hashes)
    if kernels is not None and isinstance(vector, MemoryVector):
        _check(vector.array, bits)
        kernels.bloom.count_per_element(read_only(vector.array), read_only(digests), bits, hashes, ones, distinct)
    else:
        found = positions(digests, bits, hashes)
        if isinstance(vector, MemoryVector):
            readings = test_bits(vector.array, found)
        else:
            bytes_there = vector.fetch((found >> np.uint64(3)).astype(np.int64), 1)[..., 0]
            readings = (bytes_there >> (np.uint8(7) - (found & np.uint64(7)).astype(np.uint8))) & np.uint8(1) != 0
        ones, distinct = count_ones_per_element(found, readings)
    return distinct * (hashes + 1) + ones


def read_one(bits: int, hashes: int, vector: memoryview, digest: int) -> int:
    """`read` of one digest, in plain integers."""
    position = digest * bits >> 64
    if hashes == 1:
        return 2 + (vector[position >> 3] >> (7 - (position & 7)) & 1)
    found = {position}
    for i in range(1, hashes):
        z = digest + i * STEP & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        found.add((z ^ z >> 31) * bits >> 64)
    ones = sum(vector[place >> 3] >> (7 - (place & 7)) & 1 for place in found)
    return len(found) * (hashes + 1) + ones


def count_ones_per_element(
    positions: NDArray[np.uint64], readings: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ones among the distinct positions of each element, and how many distinct positions it has.

    positions: (n, k) as `positions` gives them; readings: bool (n, k), the noisy bits there.
    Two int64 arrays (n,). Rows with coinciding positions are rare (k²/2m) and take a slower way.
    """
    if positions.ndim != 2 or positions.shape != readings.shape:
        raise must_be("readings", "of the shape of positions, (elements, hashes)")
    ones = readings.sum(axis=1, dtype=np.int64)
    distinct = np.full(len(positions), positions.shape[1], dtype=np.int64)
    ordered = np.sort(positions, axis=1)
    rows = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if rows.size:
        order = np.argsort(positions[rows], axis=1)
        sorted_positions = np.take_along_axis(positions[rows], order, axis=1)
        first = np.ones(order.shape, dtype=bool)
        first[:, 1:] = sorted_positions[:, 1:] != sorted_positions[:, :-1]
        ones[rows] = (np.take_along_axis(readings[rows], order, axis=1) & first).sum(axis=1)
        distinct[rows] = first.sum(axis=1)
    return ones, distinct


def _check(vector: NDArray[np.uint8], bits: int) -> None:
    """Raise ValueError for a vector of the wrong length, as kernels do not check bounds."""
    if len(vector) != (bits + 7) // 8:
        raise ValueError(f"vector: {len(vector)} bytes long, has to be {(bits + 7) // 8}")
