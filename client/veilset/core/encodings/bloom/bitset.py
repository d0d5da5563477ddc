"""Digest → k positions, and the bits there in a packed vector.

The positions of an element are independent and uniform in the model that the W bound needs, digest and finaliser together
idealised as a random function (docs/privacy.md, section 2). Bit j of a vector is bit 7 - (j mod 8) of byte j // 8, the order of
np.packbits and of Redis' GETBIT.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
STEP = 0x9E3779B97F4A7C15


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


_THREE = np.uint64(3)
_SEVEN = np.uint64(7)


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


def last_byte_mask(bits: int) -> int:
    """Mask of the bits of the last byte that belong to the vector; the rest is padding and stays zero."""
    return 0xFF & (0xFF00 >> (bits % 8)) if bits % 8 else 0xFF
