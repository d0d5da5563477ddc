"""Packed bit vectors: bit j is bit 7 - (j mod 8) of byte j // 8, which is np.packbits order and Redis GETBIT order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def count_ones(vector: NDArray[np.uint8], chunk_bytes: int = 1 << 20) -> int:
    """Number of ones of a packed vector, chunk by chunk, so that a mapped vector is not copied."""
    return sum(
        int(np.bitwise_count(vector[start : start + chunk_bytes]).sum(dtype=np.int64))
        for start in range(0, len(vector), chunk_bytes)
    )


def last_byte_mask(bits: int) -> int:
    """Mask of the bits of the last byte that belong to the vector; the rest is padding and stays zero."""
    return 0xFF & (0xFF00 >> (bits % 8)) if bits % 8 else 0xFF
