"""The row of a digest, and reading a vector: is the row orthogonal to all planes? docs/format.md specifies both.

With k sections of s columns each and a band of w: section = floor(h·k / 2^64), f = h·k mod 2^64, and the first column is
section·s + floor(f·(s-w+1) / 2^64); with one section that is floor(h·(c-w+1) / 2^64). The coefficients are the w lowest bits of
z₂·2^64 + z₁, the lowest one replaced by 1, where z_i is the splitmix64 finaliser of h + i·0x9e3779b97f4a7c15 mod 2^64. Bit i
belongs to column first + i. So sorted digests are sorted rows.

The vector is words of 64 columns, little-endian, the b planes' words for the same columns side by side: word i of plane p is at
byte 8·(i·b + p). So all that a row needs lies together, in at most three times b words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilset.core.compiled import kernels, read_only
from veilset.core.encodings.interface import Digests, MemoryVector, Vector

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters


BAND = 128
WORD_BITS = 64

Words = NDArray[np.uint64]

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_LOW32, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)

_SPAN = 3
"""Words that 128 columns can lie in."""

_BLOCK = 1 << 14
_SAVED_SECONDS = 1.2e-7  # an element, by the kernel in place of numpy


class Row(NamedTuple):
    """The equation of one digest: its first column and its coefficients (bit i: column + i)."""

    column: int
    coefficients: int


def row(parameters: LinearParameters, digest: int) -> Row:
    """The row of one digest, in [0, 2^64)."""
    columns = parameters.section_columns
    spread = digest * parameters.sections
    column = (spread >> 64) * columns + ((spread & MASK) * (columns - parameters.band + 1) >> 64)
    low, high = _mixed(digest + STEP & MASK), _mixed(digest + 2 * STEP & MASK)
    return Row(column, (high << 64 | low) & (1 << parameters.band) - 1 | 1)


def rows(parameters: LinearParameters, digests: Words) -> tuple[Words, Words, Words]:
    """`row` of many: first columns, low and high word of the coefficients; each uint64 (n,)."""
    columns, band = parameters.section_columns, (1 << parameters.band) - 1
    first = _multiply_high(digests, parameters.sections) * np.uint64(columns)
    first += _multiply_high(digests * np.uint64(parameters.sections), columns - parameters.band + 1)
    low = _mixed_array(digests + np.uint64(STEP)) & np.uint64(band & MASK) | np.uint64(1)
    high = _mixed_array(digests + np.uint64(2 * STEP & MASK)) & np.uint64(band >> 64)
    return first, low, high


def first_digest(parameters: LinearParameters, section: int) -> int:
    """The smallest digest of a section; 2^64 behind the last one."""
    return -(-(section << 64) // parameters.sections)


def _mixed(z: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    z = (z ^ z >> 30) * FIRST & MASK
    z = (z ^ z >> 27) * SECOND & MASK
    return z ^ z >> 31


def _mixed_array(z: Words) -> Words:
    """`_mixed` of an array, in place."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(FIRST)
    z ^= z >> np.uint64(27)
    z *= np.uint64(SECOND)
    z ^= z >> np.uint64(31)
    return z


def _multiply_high(a: Words, factor: int) -> Words:
    """floor(a·factor / 2^64), factor < 2^32."""
    m = np.uint64(factor)
    return np.asarray(((a >> _32) * m + ((a & _LOW32) * m >> _32)) >> _32)


def read(parameters: LinearParameters, vector: Vector, digests: Digests) -> NDArray[np.uint8]:
    """1 where a digest's row is orthogonal to all planes, else 0; uint8 (n,)."""
    found = np.empty(len(digests), dtype=np.uint8)
    compiled = kernels(_SAVED_SECONDS * len(digests)) if isinstance(vector, MemoryVector) else None
    if compiled is not None and isinstance(vector, MemoryVector):
        words = read_only(vector.array.view("<u8").reshape(-1, parameters.planes))
        dimensions = parameters.section_columns, parameters.sections, parameters.band
        compiled.linear.read(*dimensions, words, read_only(digests), found)
        return found
    for start in range(0, len(digests), _BLOCK):
        offsets, masks = pieces(parameters, digests[start : start + _BLOCK])
        data = vector.fetch(offsets, piece_bytes(parameters))
        found[start : start + _BLOCK] = orthogonal(parameters.planes, data, masks)
    return found


def piece_bytes(parameters: LinearParameters) -> int:
    """Bytes of the vector that one digest needs."""
    return 8 * parameters.planes * min(_SPAN, parameters.words)


def pieces(parameters: LinearParameters, digests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where each digest's piece of `piece_bytes` begins, int64 (n,), and its coefficients there, uint64 (n, words of a piece)."""
    columns, low, high = rows(parameters, digests)
    shift = columns & np.uint64(63)
    back = np.uint64(63) - shift
    span = min(_SPAN, parameters.words)
    first = (columns >> np.uint64(6)).astype(np.int64)
    start = np.minimum(first, parameters.words - span)
    masks = np.zeros((len(digests), _SPAN), dtype=np.uint64)
    masks[:, 0] = low << shift
    masks[:, 1] = high << shift | low >> np.uint64(1) >> back
    masks[:, 2] = high >> np.uint64(1) >> back
    for late in range(1, span):  # at the vector's end a piece begins before its row does
        moved = np.flatnonzero(first - start == late)
        masks[moved, late:] = masks[moved, : _SPAN - late]
        masks[moved, :late] = 0
    return start * (8 * parameters.planes), masks[:, :span]


def orthogonal(planes: int, data: NDArray[np.uint8], masks: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """1 where every plane of a piece has an even number of ones under the coefficients, else 0.

    data: the pieces' bytes, uint8 (n, piece_bytes). masks: as from `pieces`.
    """
    words = np.ascontiguousarray(data).view("<u8").reshape(len(data), -1, planes)
    seen = words[:, 0] & masks[:, :1]
    for i in range(1, words.shape[1]):
        seen ^= words[:, i] & masks[:, i : i + 1]
    odd = np.bitwise_count(seen)
    odd &= np.uint8(1)
    return np.asarray(~odd.any(axis=1), dtype=np.uint8)


@lru_cache(maxsize=64)
def scalar_reader(parameters: LinearParameters) -> Callable[[memoryview, int], int]:
    """A function of the vector's bytes and one digest: `orthogonal` without numpy, which costs more than it saves for one.

    All planes at once, as one large integer: the words of a piece are folded into one word a plane, each word's parity into its
    lowest bit.
    """
    sections, section_columns, band = parameters.sections, parameters.section_columns, parameters.band
    starts, coefficients_mask = section_columns - band + 1, (1 << band) - 1
    size = 8 * parameters.planes
    piece, block, two_blocks = _SPAN * size, 8 * size, 16 * size
    lowest_bits = sum(1 << 64 * plane for plane in range(parameters.planes))
    step, twice, first, second, mask = STEP, 2 * STEP & MASK, FIRST, SECOND, MASK

    def read(vector: memoryview, digest: int) -> int:
        # `rows.row`, written out: a call costs as much as a third of the rest.
        low = digest + step & mask
        low = (low ^ low >> 30) * first & mask
        low = (low ^ low >> 27) * second & mask
        high = digest + twice & mask
        high = (high ^ high >> 30) * first & mask
        high = (high ^ high >> 27) * second & mask
        spread = digest * sections
        column = (spread >> 64) * section_columns + ((spread & mask) * starts >> 64)
        row = ((high ^ high >> 31) << 64 | low ^ low >> 31) & coefficients_mask | 1
        row <<= column & 63
        offset = (column >> 6) * size
        seen = int.from_bytes(vector[offset : offset + piece], "little")
        seen &= (row & mask | (row >> 64 & mask) << block | row >> 128 << two_blocks) * lowest_bits
        seen ^= seen >> block ^ seen >> two_blocks
        seen ^= seen >> 32
        seen ^= seen >> 16
        seen ^= seen >> 8
        seen ^= seen >> 4
        seen ^= seen >> 2
        seen ^= seen >> 1
        return 0 if seen & lowest_bits else 1

    return read
