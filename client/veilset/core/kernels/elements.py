"""Elements that lie in one buffer: finding where they end, and their MurmurHash3 x64 128 (Austin Appleby's reference), of which
the first half is the digest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.kernels import inline, kernel

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_A1 = np.uint64(0x52DCE729)
_A2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_33 = np.uint64(33)
_0 = np.uint64(0)
_1 = np.uint64(1)
_EACH_BYTE = np.uint64(0x0101010101010101)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_INDEX_OF_BYTE = np.uint64(0x0001020304050607)
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
    """Digest of each data[start:end] into ``out``, shape (n,). The caller has checked 0 ≤ start ≤ end ≤ len(data)."""
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
        out[j] = _finish(h1) + _finish(h2)


@inline
def _first_byte(bits: np.uint64) -> int:
    """Which byte holds the lowest one of ``bits``, which are top bits of bytes."""
    lowest = (bits & (~bits + _1)) >> np.uint64(7)  # 256^i for byte i
    return int((lowest * _INDEX_OF_BYTE) >> np.uint64(56))


@kernel
def find_byte(data: NDArray[np.uint8], value: int, places: NDArray[np.int64]) -> int:
    """Where ``value`` is in ``data``, in order, as many as go into ``places``, whose rest is overwritten; returns how many
    there are.

    Eight bytes at a time: adding 127 to the low seven bits of a byte carries into its top bit unless they are all zero, so the
    top bits that are left name the bytes that are ``value``, and no others.
    """
    count = 0
    pattern = np.uint64(value) * _EACH_BYTE
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        differing = _word(data, np.uint64(at)) ^ pattern
        equal = ~(((differing & _LOW_BITS) + _LOW_BITS) | differing | _LOW_BITS)
        if count < len(places):  # without a branch on whether there is one, which the processor would often guess wrong
            places[count] = at + _first_byte(equal)
            count += int(equal != _0)
            equal &= equal - _1
        while equal:
            if count < len(places):
                places[count] = at + _first_byte(equal)
            count += 1
            equal &= equal - _1
    for i in range(whole, len(data)):
        if data[i] == value:
            if count < len(places):
                places[count] = i
            count += 1
    return count
