"""Setting and reading the positions of digests in a packed vector; the arithmetic is that of `core.elements.hashing`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.kernels import inline, kernel

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_1 = np.uint64(1)
_3 = np.uint64(3)
_7 = np.uint64(7)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 256
"""Digests whose positions are looked at together."""


@inline
def _position(h: np.uint64, i: int, bits: np.uint64) -> np.uint64:
    """Position i of digest h, bits ≤ 2^40."""
    z = h
    if i:
        z = h + np.uint64(i) * _STEP
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    z_high, z_low = z >> _32, z & _LOW32
    m_high, m_low = bits >> _32, bits & _LOW32
    middle = z_high * m_low + ((z_low * m_low) >> _32)
    carry = z_low * m_high + (middle & _LOW32)
    return z_high * m_high + (middle >> _32) + (carry >> _32)


@inline
def _look_up(
    vector: NDArray[np.uint8], hashed: NDArray[np.uint64], bits: np.uint64, hashes: int, found: NDArray[np.uint64]
) -> np.uint8:
    """Positions of digests (n,), n ≤ _BLOCK, into ``found``. Their bytes are read all at once, so that anyone who needs them
    next finds them in the cache instead of waiting for one after the other; what is returned says that they are needed."""
    for j in range(len(hashed)):
        for i in range(hashes):
            found[j * hashes + i] = _position(hashed[j], i, bits)
    read = np.uint8(0)
    for i in range(len(hashed) * hashes):
        read ^= vector[found[i] >> _3]
    return read


@kernel
def insert(vector: NDArray[np.uint8], hashed: NDArray[np.uint64], bits: int, hashes: int) -> int:
    """Set the positions of digests (n,); returns a byte that keeps the reads ahead from being left out."""
    read = np.uint8(0)
    found = np.empty(_BLOCK * hashes, np.uint64)
    for first in range(0, len(hashed), _BLOCK):
        block = hashed[first : first + _BLOCK]
        read ^= _look_up(vector, block, np.uint64(bits), hashes, found)
        for i in range(len(block) * hashes):
            position = found[i]
            vector[position >> _3] |= np.uint8(np.uint64(0x80) >> (position & _7))
    return int(read)


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
    read = np.zeros(1, np.uint8)
    found = np.empty(_BLOCK * hashes, np.uint64)
    for first in range(0, len(hashed), _BLOCK):
        block = hashed[first : first + _BLOCK]
        read[0] ^= _look_up(vector, block, np.uint64(bits), hashes, found)
        for j in range(len(block)):
            own = found[j * hashes : (j + 1) * hashes]
            set_bits = different = 0
            for i in range(hashes):
                position = own[i]
                again = False
                for earlier in range(i):
                    again |= own[earlier] == position
                if not again:
                    set_bits += int((np.uint64(vector[position >> _3]) >> (_7 - (position & _7))) & _1)
                    different += 1
            ones[first + j] = set_bits
            distinct[first + j] = different


@kernel
def decide_tail(
    flips: NDArray[np.uint8], undecided: NDArray[np.uint8], drawn: NDArray[np.uint64], tail: np.uint64
) -> None:
    """Set in ``flips`` each bit that ``undecided`` has and whose own integer of ``drawn``, in order, is below ``tail``. Both are
    packed, of one length, which is a multiple of 8; drawn: one integer for each bit of ``undecided``."""
    words = undecided.view(np.uint64)
    places = np.empty(len(words), np.int64)
    open_words = used = 0
    for i in range(len(words)):  # without a branch, as in deciding: the processor would guess wrong too often
        places[open_words] = 8 * i
        open_words += int(words[i] != 0)
    for first in places[:open_words]:
        left = below = np.uint64(0)
        for i in range(8):
            left = (left << np.uint64(8)) | np.uint64(undecided[first + i])
        while left:
            highest = left
            for shift in (1, 2, 4, 8, 16, 32):
                highest |= highest >> np.uint64(shift)
            highest ^= highest >> _1
            below |= highest * np.uint64(drawn[used] < tail)
            used += 1
            left ^= highest
        for i in range(8):
            flips[first + i] |= np.uint8((below >> np.uint64(56 - 8 * i)) & np.uint64(0xFF))
