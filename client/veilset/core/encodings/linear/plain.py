"""Elimination and back substitution over GF(2), in plain Python: the reference that the kernels equal bit for bit.

Both work on one section of c columns. Pivots are uint64 (c, 2): low and high word of the row whose first coefficient is at this
column, 0 at a free column, where none begins. Planes are uint64 (words, b): bit j of word [i, p] is column 64·i + j of plane p.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.linear.rows import WORD_BITS, row

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters

_WORD = (1 << WORD_BITS) - 1


def eliminate(parameters: LinearParameters, pivots: NDArray[np.uint64], digests: NDArray[np.uint64]) -> None:
    """Add the rows of digests of one section to its pivots; a row that depends on those before it adds nothing."""
    for digest in digests.tolist():
        column, rest = row(parameters, digest)
        column %= parameters.section_columns
        while rest:
            zeros = (rest & -rest).bit_length() - 1
            rest >>= zeros
            column += zeros
            low, high = pivots[column].tolist()
            if not low:
                pivots[column] = rest & _WORD, rest >> WORD_BITS
                break
            rest ^= high << WORD_BITS | low


def substitute(parameters: LinearParameters, pivots: NDArray[np.uint64], planes: NDArray[np.uint64]) -> None:
    """From the last column to the first: a pivot's column gets the value that its row asks for, a free one keeps its random bit.

    planes: uniform bits on entry, a uniform solution on return, with zeros behind the last column.
    """
    columns, band = parameters.section_columns, (1 << parameters.band) - 1
    for plane in range(parameters.planes):
        values = np.unpackbits(planes[:, plane].astype("<u8").view(np.uint8), bitorder="little")
        values[columns:] = 0
        window = 0
        for column in reversed(range(columns)):
            window = window << 1 & band
            low, high = pivots[column].tolist()
            if low:
                values[column] = ((high << WORD_BITS | low) & window).bit_count() & 1
            window |= int(values[column])
        planes[:, plane] = np.packbits(values, bitorder="little").view("<u8")
