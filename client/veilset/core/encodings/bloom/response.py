"""Randomized response on packed bits: each bit is flipped iff a uniform 64-bit integer is below the threshold T.

The comparison runs bit plane by bit plane, most significant first, for all bits of a chunk at once. A bit is decided at
the first plane where its random integer differs from T, so after eight planes one in 256 is still open; those draw their
remaining 56 bits one by one. Every bit therefore has exactly the law of the full 64-bit comparison:
P(flip) = T / 2^64, independent of all other bits and of the bit's value. No floating point takes part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.errors import must_be

RandomBytes = Callable[[int], bytes | bytearray | memoryview]

PERTURB_CHUNK_BYTES = 1 << 16

_WORD_BITS = 64
_DENSE_PLANES = 8
_TAIL_BITS = _WORD_BITS - _DENSE_PLANES


def perturb(vector: NDArray[np.uint8], bits: int, threshold: int, random_bytes: RandomBytes) -> NDArray[np.uint8]:
    """Return a noisy copy of a packed vector of ``bits`` bits; padding bits of the last byte are zero.

    threshold: T in [1, 2^63], flip probability T / 2^64. random_bytes(n): the next n bytes of a cryptographic stream.
    A vector may be perturbed in pieces, each but the last a multiple of 8 bits long, from one stream.
    Raises InvalidInput for a threshold out of range or a vector of the wrong length, ValueError if the stream gives fewer
    bytes than asked for.
    """
    if not 1 <= threshold <= 1 << 63:
        raise must_be("threshold", "an integer in [1, 2^63]", threshold)
    if bits < 1 or len(vector) != (bits + 7) // 8:
        raise must_be("vector", f"ceil({bits}/8) bytes long", len(vector))
    noisy = np.empty(len(vector), dtype=np.uint8)
    for start in range(0, len(vector), PERTURB_CHUNK_BYTES):
        piece = vector[start : start + PERTURB_CHUNK_BYTES]
        np.bitwise_xor(piece, _flips(len(piece), threshold, random_bytes), out=noisy[start : start + len(piece)])
    noisy[-1] &= last_byte_mask(bits)
    return noisy


def _flips(length: int, threshold: int, random_bytes: RandomBytes) -> NDArray[np.uint8]:
    """A packed mask of ``length`` bytes, each bit one with probability threshold / 2^64."""
    flips = np.zeros(length, dtype=np.uint8)
    undecided = np.full(length, 0xFF, dtype=np.uint8)
    ones = np.empty(length, dtype=np.uint8)
    for plane in range(_WORD_BITS - 1, _TAIL_BITS - 1, -1):
        random = np.frombuffer(random_bytes(length), dtype=np.uint8, count=length)
        np.bitwise_and(undecided, random, out=ones)
        zeros = np.bitwise_xor(undecided, ones, out=undecided)
        if threshold >> plane & 1:
            np.bitwise_or(flips, zeros, out=flips)  # a zero under T's one: the integer is below T
            undecided, ones = ones, zeros
        else:
            undecided = zeros  # a one over T's zero: above
    _decide_tail(flips, undecided, threshold & ((1 << _TAIL_BITS) - 1), random_bytes)
    return flips


def _decide_tail(flips: NDArray[np.uint8], undecided: NDArray[np.uint8], tail: int, random_bytes: RandomBytes) -> None:
    """Compare the remaining bits of the open positions with the remaining bits of T; equal means not below."""
    whole = len(undecided) % 8 == 0
    count = int(np.bitwise_count(undecided.view(np.uint64) if whole else undecided).sum(dtype=np.int64))
    drawn = np.frombuffer(random_bytes(8 * count), dtype="<u8", count=count) >> np.uint64(_WORD_BITS - _TAIL_BITS)
    if whole and (kernels := compiled.kernels(compiled.SAVED_PER_PERTURBED_BYTE * len(undecided))):
        kernels.bloom.decide_tail(flips, undecided, drawn, np.uint64(tail))
        return
    touched = _bytes_with_ones(undecided)
    open_bits = np.unpackbits(undecided[touched]).view(np.bool_)
    decided = np.zeros(len(open_bits), dtype=np.bool_)
    decided[open_bits] = drawn < np.uint64(tail)
    flips[touched] |= np.packbits(decided)


def _bytes_with_ones(packed: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Indexes of the bytes that are not zero, in order; few are, so eight are looked at together."""
    if len(packed) % 8:
        return np.flatnonzero(packed)
    words = np.flatnonzero(packed.view(np.uint64))
    places = np.flatnonzero(packed.reshape(-1, 8)[words])
    return np.asarray(8 * words[places >> 3] + (places & 7))


def last_byte_mask(bits: int) -> int:
    """Mask of the bits of the last byte that belong to the vector; the rest is padding and stays zero."""
    return 0xFF & (0xFF00 >> (bits % 8)) if bits % 8 else 0xFF
