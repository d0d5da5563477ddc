"""Elimination, back substitution and asking over GF(2); the arithmetic is that of `veilset.core.encodings.linear`.

A coefficient row is two words. Multiplications and shifts are of uint64 throughout: numba makes floats of uint64 with int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from veilset.core.kernels import inline, kernel

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_6, _32, _63, _64 = np.uint64(6), np.uint64(32), np.uint64(63), np.uint64(64)
_LOW32 = np.uint64(0xFFFFFFFF)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def _population(_context: Any, _word: Any) -> Any:
    def generate(_lowering: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def _zeros_below(_context: Any, _word: Any) -> Any:
    def generate(_lowering: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


_ones: Any = intrinsic(_population)
"""Ones of a word, by the processor's own instruction; likewise zeros below the lowest one of a word that is not 0."""
_trailing_zeros: Any = intrinsic(_zeros_below)


@inline
def _mixed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inline
def _multiply_high(a: np.uint64, factor: np.uint64) -> np.uint64:
    """floor(a·factor / 2^64), factor < 2^32."""
    return ((a >> _32) * factor + (((a & _LOW32) * factor) >> _32)) >> _32


@inline
def _row(
    digest: np.uint64, columns: np.uint64, sections: np.uint64, band: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """First column of a digest's section, first column of its row there, and its coefficients."""
    section = _multiply_high(digest, sections)
    column = _multiply_high(digest * sections, columns - band + _1)
    low = _mixed(digest + _STEP)
    high = _mixed(digest + _STEP + _STEP)
    if band <= _64:
        high = _0
        low &= _ALL >> (_64 - band)
    else:
        high &= _ALL >> (_64 + _64 - band)
    return section * columns, column, low | _1, high


@kernel
def eliminate(columns: int, sections: int, band: int, pivots: NDArray[np.uint64], digests: NDArray[np.uint64]) -> None:
    """As `veilset.core.encodings.linear.encode.eliminate`. columns: of one section."""
    for i in range(len(digests)):
        _, column, low, high = _row(digests[i], np.uint64(columns), np.uint64(sections), np.uint64(band))
        while low | high:
            if low == _0:
                low, high = high, _0
                column += _64
            zeros = _trailing_zeros(low)
            low = (low >> zeros) | ((high << _1) << (_63 - zeros))
            high >>= zeros
            column += zeros
            pivot = pivots[column, 0]
            if pivot == _0:
                pivots[column, 0] = low
                pivots[column, 1] = high
                break
            low ^= pivot
            high ^= pivots[column, 1]


@kernel
def substitute(columns: int, pivots: NDArray[np.uint64], planes: NDArray[np.uint64]) -> None:
    """As `veilset.core.encodings.linear.encode.substitute`. The windows hold 128 columns whatever the band: a pivot has no
    coefficients behind it."""
    words, count = planes.shape
    low = np.zeros(count, np.uint64)
    high = np.zeros(count, np.uint64)
    for word in range(words - 1, -1, -1):
        for bit in range(min(64, columns - 64 * word) - 1, -1, -1):
            pivot_low = pivots[64 * word + bit, 0]
            pivot_high = pivots[64 * word + bit, 1]
            place = np.uint64(bit)
            for p in range(count):
                high[p] = (high[p] << _1) | (low[p] >> _63)
                low[p] <<= _1
                if pivot_low:
                    low[p] |= _ones((low[p] & pivot_low) ^ (high[p] & pivot_high)) & _1
                else:
                    low[p] |= (planes[word, p] >> place) & _1
        for p in range(count):
            planes[word, p] = low[p]


@kernel
def read(
    columns: int,
    sections: int,
    band: int,
    planes: NDArray[np.uint64],
    digests: NDArray[np.uint64],
    found: NDArray[np.uint8],
) -> None:
    """Whether each digest's row is orthogonal to every plane, 1 or 0 into ``found`` (n,); planes: the whole vector (words, b)."""
    last = np.uint64(len(planes) - 1)
    for i in range(len(digests)):
        section, column, low, high = _row(digests[i], np.uint64(columns), np.uint64(sections), np.uint64(band))
        column += section
        shift = column & _63
        first = low << shift
        second = (high << shift) | ((low >> _1) >> (_63 - shift))
        third = (high >> _1) >> (_63 - shift)
        word = column >> _6
        after, behind = min(word + _1, last), min(word + _2, last)
        orthogonal = np.uint8(1)
        for p in range(planes.shape[1]):
            seen = (planes[word, p] & first) ^ (planes[after, p] & second) ^ (planes[behind, p] & third)
            if _ones(seen) & _1:
                orthogonal = np.uint8(0)
                break
        found[i] = orthogonal
