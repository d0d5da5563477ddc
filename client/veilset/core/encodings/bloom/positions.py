"""64-bit digest → k positions.

The positions of an element are independent and uniform in the model that the W bound needs, digest and finaliser together
idealised as a random function (docs/privacy.md, section 2).
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
