"""The public parameters of a linear release: the dimensions of its system of equations, and the coin of every digest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from veilset.core.encodings.linear.calibration import COIN_SIDES, drop_threshold
from veilset.core.params import MAX_BITS, PrivacyParameters, check_integer
from veilset.errors import InvalidInput

BAND = 128
MAX_PLANES = 32
WORD_BITS = 64
SECTION_COLUMNS = 1 << 22
"""Columns of the longest section; 16 bytes for each are held while it is encoded."""


@dataclass(frozen=True)
class LinearParameters:
    """Dimensions and noise of a linear vector: ``planes`` vectors of ``columns`` bits, solved section by section.

    columns: c >= band; above 2^22 a multiple of `columns_step`, so that k = ceil(c / 2^22) sections of equal length are whole
    words of 64. planes: b, in [1, 32], q = 2^b; c·b at most 2^40. band: w coefficients a row, in [1, 128]; below 128 for tests
    only. drop_threshold: T in [1, 2^64 - 1]; a distinct digest is dropped with probability T/2^64.
    """

    columns: int
    band: int
    planes: int
    drop_threshold: int

    def __post_init__(self) -> None:
        check_integer("band", self.band, 1, BAND)
        check_integer("planes", self.planes, 1, MAX_PLANES)
        check_integer("columns", self.columns, self.band, MAX_BITS // self.planes)
        if self.sections > 1 and self.columns % columns_step(self.columns):
            raise InvalidInput(
                "columns", f"a multiple of {columns_step(self.columns)} above {SECTION_COLUMNS}", self.columns
            )
        check_integer("drop_threshold", self.drop_threshold, 1, COIN_SIDES - 1)

    @property
    def q(self) -> int:
        """2^planes; a non-member's row is orthogonal to all planes with probability 1/q."""
        return 1 << self.planes

    @cached_property
    def sections(self) -> int:
        """Systems of equations, one behind the other."""
        return -(-self.columns // SECTION_COLUMNS)

    @cached_property
    def section_columns(self) -> int:
        """Columns of each section."""
        return self.columns // self.sections

    @cached_property
    def words(self) -> int:
        """Words of 64 columns in one plane of the whole vector."""
        return -(-self.columns // WORD_BITS)

    @property
    def vector_bytes(self) -> int:
        """Length of the vector: every plane filled up to whole words by zeros."""
        return self.words * self.planes * (WORD_BITS // 8)

    @property
    def drop_probability(self) -> float:
        """d, to the nearest float."""
        return self.drop_threshold / COIN_SIDES

    def __str__(self) -> str:
        return f"{self.columns} columns, {self.planes} planes, band {self.band}"


def columns_step(columns: int) -> int:
    """What a number of columns must be a multiple of."""
    sections = -(-columns // SECTION_COLUMNS)
    return sections * WORD_BITS if sections > 1 else 1


def calibrate(columns: int, planes: int, privacy: PrivacyParameters, band: int = BAND) -> LinearParameters:
    """The least noise with which a release of these dimensions keeps the promise; only ``planes`` plays a part in it.

    What is promised is what is charged: the decimal that epsilon stands for. delta and min_size buy nothing here. Raises
    InvalidInput, naming ``planes`` where so many would drop every element.
    """
    check_integer("planes", planes, 1, MAX_PLANES)
    threshold = drop_threshold(privacy.epsilon, privacy.adjacency, planes, privacy.elements_per_user)
    if threshold >= COIN_SIDES:
        raise InvalidInput("planes", f"fewer at epsilon {privacy.epsilon:g}: so many would drop every element", planes)
    return LinearParameters(columns, band, planes, threshold)
