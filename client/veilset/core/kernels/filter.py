"""Setting and reading the positions of digests in a packed vector; the arithmetic is that of `veilset.core.hashing`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.kernels.jit import inline, kernel

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_1 = np.uint64(1)
_3 = np.uint64(3)
_7 = np.uint64(7)
_MOST_HASHES = 32


@inline
def _position(start: np.uint64, step: np.uint64, i: int, bits: np.uint64) -> np.uint64:
    """floor(splitmix64(start + i·step)·bits / 2^64), bits ≤ 2^40."""
    z = start + np.uint64(i) * step
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    z_high, z_low = z >> _32, z & _LOW32
    m_high, m_low = bits >> _32, bits & _LOW32
    middle = z_high * m_low + ((z_low * m_low) >> _32)
    carry = z_low * m_high + (middle & _LOW32)
    return z_high * m_high + (middle >> _32) + (carry >> _32)


@kernel
def insert(vector: NDArray[np.uint8], hashed: NDArray[np.uint64], bits: int, hashes: int) -> int:
    """Set the positions of digests (n, 2); returns how many digests, one after the other, set at least one new bit.

    No branch and no store depends on what the vector holds (see `veilset.core.bloom`).
    """
    new = 0
    length = np.uint64(bits)
    for j in range(len(hashed)):
        start, step = hashed[j, 0], hashed[j, 1] | _1
        fresh = np.uint8(0)
        for i in range(hashes):
            position = _position(start, step, i, length)
            byte, mask = position >> _3, np.uint8(np.uint64(0x80) >> (position & _7))
            before = vector[byte]
            fresh |= mask & ~before
            vector[byte] = before | mask
        new += int((np.uint64(fresh) + np.uint64(255)) >> np.uint64(8))
    return new


@kernel
def count_readings(vector: NDArray[np.uint8], hashed: NDArray[np.uint64], bits: int, hashes: int) -> int:
    """Ones at all positions of all digests, each position as often as it occurs."""
    ones = np.uint64(0)
    length = np.uint64(bits)
    for j in range(len(hashed)):
        start, step = hashed[j, 0], hashed[j, 1] | _1
        for i in range(hashes):
            position = _position(start, step, i, length)
            ones += (np.uint64(vector[position >> _3]) >> (_7 - (position & _7))) & _1
    return int(ones)


@kernel
def count_per_element(
    vector: NDArray[np.uint8],
    hashed: NDArray[np.uint64],
    bits: int,
    hashes: int,
    ones: NDArray[np.int64],
    distinct: NDArray[np.int64],
) -> None:
    """Ones among the distinct positions of each digest into ``ones``, their number into ``distinct``; both (n,)."""
    length = np.uint64(bits)
    seen = np.empty(_MOST_HASHES, np.uint64)
    for j in range(len(hashed)):
        start, step = hashed[j, 0], hashed[j, 1] | _1
        found = different = 0
        for i in range(hashes):
            position = _position(start, step, i, length)
            again = False
            for other in range(different):
                again |= seen[other] == position
            if not again:
                seen[different] = position
                different += 1
                found += int((np.uint64(vector[position >> _3]) >> (_7 - (position & _7))) & _1)
        ones[j] = found
        distinct[j] = different
