"""Elements that lie in one buffer: finding where they end, and their MurmurHash3 x64 128 (Austin Appleby's reference; h1 and h2
as mmh3 gives them)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.kernels.jit import inline, kernel

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_A1 = np.uint64(0x52DCE729)
_A2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_33 = np.uint64(33)
_0 = np.uint64(0)
_EACH_BYTE = np.uint64(0x0101010101010101)
_TOP_BITS = np.uint64(0x8080808080808080)
_8 = np.uint64(8)


@inline
def _rotate(word: np.uint64, bits: int) -> np.uint64:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inline
def _finish(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _33)) * _M1
    word = (word ^ (word >> _33)) * _M2
    return word ^ (word >> _33)


@inline
def _word(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Eight bytes, little-endian; LLVM makes one load of it."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@inline
def _part(data: NDArray[np.uint8], at: np.uint64, length: np.uint64) -> np.uint64:
    """The ``length`` bytes, 0 to 8, from ``at`` on, little-endian, filled up with zeros."""
    if at + _8 <= np.uint64(len(data)):
        word = _word(data, at)
        return word & ((np.uint64(1) << (_8 * length)) - np.uint64(1)) if length < _8 else word
    word = _0
    for i in range(length):
        word |= np.uint64(data[at + np.uint64(i)]) << (_8 * np.uint64(i))
    return word


@kernel
def hash_packed(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], seed: int, out: NDArray[np.uint64]
) -> None:
    """Digest of each data[start:end] into ``out``, shape (n, 2). The caller has checked 0 ≤ start ≤ end ≤ len(data)."""
    for j in range(len(starts)):
        at = np.uint64(starts[j])
        length = np.uint64(ends[j]) - at
        h1 = h2 = np.uint64(seed)
        for _ in range(length >> np.uint64(4)):
            k1 = _word(data, at)
            k2 = _word(data, at + _8)
            at += np.uint64(16)
            h1 ^= _rotate(k1 * _C1, 31) * _C2
            h1 = (_rotate(h1, 27) + h2) * _FIVE + _A1
            h2 ^= _rotate(k2 * _C2, 33) * _C1
            h2 = (_rotate(h2, 31) + h1) * _FIVE + _A2
        rest = length & np.uint64(15)
        k2 = _part(data, at + _8, rest - _8) if rest > _8 else _0
        k1 = _part(data, at, min(rest, _8))
        h2 ^= _rotate(k2 * _C2, 33) * _C1
        h1 ^= _rotate(k1 * _C1, 31) * _C2
        h1 ^= length
        h2 ^= length
        h1 += h2
        h2 += h1
        h1 = _finish(h1)
        h2 = _finish(h2)
        h1 += h2
        h2 += h1
        out[j, 0] = h1
        out[j, 1] = h2


@kernel
def find_byte(data: NDArray[np.uint8], value: int, places: NDArray[np.int64]) -> int:
    """Where ``value`` is in ``data``, in order, as many as go into ``places``; returns how many there are.

    Eight bytes at a time: x - 1 borrows into the top bit of a byte that is 0 (and perhaps of those above it, so each is looked
    at then).
    """
    count = 0
    pattern = np.uint64(value) * _EACH_BYTE
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        differing = _word(data, np.uint64(at)) ^ pattern
        if (differing - _EACH_BYTE) & ~differing & _TOP_BITS:
            for i in range(at, at + 8):
                if data[i] == value:
                    if count < len(places):
                        places[count] = i
                    count += 1
    for i in range(whole, len(data)):
        if data[i] == value:
            if count < len(places):
                places[count] = i
            count += 1
    return count
