"""The row of a digest: where its band begins and which coefficients it has. docs/format.md specifies it for other readers.

With k sections of s columns each and a band of w: section = floor(h·k / 2^64), f = h·k mod 2^64, and the first column is
section·s + floor(f·(s-w+1) / 2^64); with one section that is floor(h·(c-w+1) / 2^64). The coefficients are the w lowest bits of
z₂·2^64 + z₁, the lowest one replaced by 1, where z_i is the splitmix64 finaliser of h + i·0x9e3779b97f4a7c15 mod 2^64. Bit i
belongs to column first + i. So sorted digests are sorted rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters

BAND = 128
WORD_BITS = 64

Words = NDArray[np.uint64]

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_LOW32, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


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
    """The same, in place."""
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
