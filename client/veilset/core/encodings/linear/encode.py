"""Drawing a linear vector: coins, elimination front to back, back substitution; one section after the other.

Sorted digests fill the sections in order, so a section is finished as soon as a digest of a later one comes: memory holds one
section, 16 bytes a column and its planes, however long the vector. The random bytes that are taken are the coins, 8 for every
distinct digest, and one bit for every column and plane; what a pivot's column drew is overwritten.

Pivots are uint64 (c, 2): low and high word of the row whose first coefficient is at this column, 0 at a free column, where none
begins. Planes are uint64 (words, b): bit j of word [i, p] is column 64·i + j of plane p. `eliminate` and `substitute` in plain
Python are the reference that the kernels equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilset.core.compiled import kernels, read_only
from veilset.core.encodings.interface import CHUNK_BYTES, Digests, RandomBytes
from veilset.core.encodings.linear.rows import WORD_BITS, first_digest, row
from veilset.errors import must_be

if TYPE_CHECKING:
    from veilset.core.encodings.linear.parameters import LinearParameters


COINS = 1 << 18
"""Digests whose coins are drawn together."""

_SAVED_SECONDS = 2e-5
"""What the kernels save for each column, about."""

_WORD = (1 << WORD_BITS) - 1


def encode(
    parameters: LinearParameters, chunks: Iterable[Digests], random_bytes: RandomBytes, *, compiled: bool = True
) -> Iterator[bytes]:
    """A fresh vector in pieces of CHUNK_BYTES, the last one shorter; it is laid out as `veilset.core.encodings.linear.rows` says.

    chunks: strictly increasing digests over all chunks (checked: the promise rests on one coin for each). random_bytes(n): the
    next n bytes of a cryptographic stream. compiled: by the kernels where numba runs; the same vector otherwise. Raises
    InvalidInput for digests out of order.
    """
    rest = bytearray()
    for section in solved_sections(parameters, chunks, random_bytes, compiled=compiled):
        rest += section
        whole = len(rest) // CHUNK_BYTES * CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            yield bytes(rest[start : start + CHUNK_BYTES])
        del rest[:whole]
    if rest:
        yield bytes(rest)


def solved_sections(
    parameters: LinearParameters, chunks: Iterable[Digests], random_bytes: RandomBytes, *, compiled: bool
) -> Iterator[bytes]:
    """The vector's sections, each as soon as a digest of a later one comes."""
    solver = _Solver(parameters, random_bytes, compiled=compiled)
    section = 0
    for kept in keep_some(strictly_increasing(chunks), parameters.drop_threshold, random_bytes):
        rest = kept
        while len(rest):
            behind = first_digest(parameters, section + 1)
            here = int(np.searchsorted(rest, np.uint64(behind))) if section + 1 < parameters.sections else len(rest)
            solver.eliminate(rest[:here])
            rest = rest[here:]
            if len(rest):
                yield solver.finish()
                section += 1
    for _ in range(section, parameters.sections):
        yield solver.finish()


def strictly_increasing(chunks: Iterable[Digests]) -> Iterator[Digests]:
    """The chunks, at most `COINS` digests each. Raises InvalidInput at a digest that does not exceed the one before it."""
    last = -1
    for chunk in chunks:
        for start in range(0, len(chunk), COINS):
            digests = np.ascontiguousarray(chunk[start : start + COINS], dtype=np.uint64)
            if int(digests[0]) <= last or not np.all(digests[1:] > digests[:-1]):
                raise must_be("digests", "strictly increasing")
            last = int(digests[-1])
            yield digests


def keep_some(chunks: Iterable[Digests], drop_threshold: int, random_bytes: RandomBytes) -> Iterator[Digests]:
    """Of each chunk the digests whose fresh 64-bit coin is not below the threshold."""
    for digests in chunks:
        coins = np.frombuffer(random_bytes(8 * len(digests)), dtype="<u8", count=len(digests))
        yield digests[coins >= np.uint64(drop_threshold)]


def random_planes(words: int, planes: int, random_bytes: RandomBytes) -> NDArray[np.uint64]:
    """Uniform bits for every column and plane; uint64 (words, planes)."""
    drawn = np.frombuffer(random_bytes(8 * words * planes), dtype="<u8", count=words * planes)
    return drawn.astype(np.uint64).reshape(words, planes)


class _Solver:
    """The system of one section after the other."""

    def __init__(self, parameters: LinearParameters, random_bytes: RandomBytes, *, compiled: bool) -> None:
        self._parameters, self._random_bytes = parameters, random_bytes
        self._kernels = kernels(parameters.columns * _SAVED_SECONDS) if compiled else None
        self._pivots = np.zeros((parameters.section_columns, 2), dtype=np.uint64)

    def eliminate(self, digests: Digests) -> None:
        """Add kept digests of the section."""
        if self._kernels is None:
            eliminate(self._parameters, self._pivots, digests)
        else:
            p = self._parameters
            self._kernels.linear.eliminate(p.section_columns, p.sections, p.band, self._pivots, read_only(digests))

    def finish(self) -> bytes:
        """Draw a solution of the section, and begin the next."""
        p = self._parameters
        planes = random_planes(-(-p.section_columns // WORD_BITS), p.planes, self._random_bytes)
        if self._kernels is None:
            substitute(p, self._pivots, planes)
        else:
            self._kernels.linear.substitute(p.section_columns, self._pivots, planes)
        self._pivots[:] = 0
        return planes.astype("<u8", copy=False).tobytes()


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
