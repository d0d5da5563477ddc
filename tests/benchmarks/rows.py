"""What a row of the table is: a ratio between two things measured in turns in one run, and a target for it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Measured = dict[str, "Ratio"]
"""Row key → what was measured; a row that is not in it could not be."""


class Side(StrEnum):
    """On which side of the target a ratio has to be."""

    AT_LEAST = "≥"
    AT_MOST = "≤"
    BETWEEN = "…"


@dataclass(frozen=True, slots=True)
class Target:
    """high: for BETWEEN only. unit: what the number counts; empty for a plain ratio."""

    side: Side
    value: float
    high: float = 0.0
    unit: str = ""

    def reached(self, value: float) -> bool:
        """Whether ``value`` is where it shall be."""
        if self.side is Side.BETWEEN:
            return self.value <= value <= self.high
        return value >= self.value if self.side is Side.AT_LEAST else value <= self.value

    def __str__(self) -> str:
        if self.side is Side.BETWEEN:
            return f"{self.value:g} … {self.high:g}"
        return f"{self.side} {self.value:g}{self.unit}"


def at_least(value: float, unit: str = "") -> Target:
    """A lower limit."""
    return Target(Side.AT_LEAST, value, unit=unit)


def at_most(value: float, unit: str = "") -> Target:
    """An upper limit."""
    return Target(Side.AT_MOST, value, unit=unit)


def between(low: float, high: float) -> Target:
    """Both."""
    return Target(Side.BETWEEN, low, high)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. key: family, a slash, a name. peer: what it is compared with."""

    key: str
    work: str
    peer: str
    target: Target


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median over the repeats, the least and the greatest; ours and theirs in words, such as "0.31 s"."""

    value: float
    low: float
    high: float
    repeats: int
    ours: str
    theirs: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """How to measure: repeats of everything, and the divisor of all sizes (1 for the real ones)."""

    repeats: int = 5
    divisor: int = 1

    def size(self, real: int) -> int:
        """A size at this run's scale."""
        return max(1, real // self.divisor)


@dataclass(frozen=True, slots=True)
class Family:
    """Rows that are measured together. packages: the peers that they need, by the name that is installed and the name that
    is imported. measure: everything at once; raises `Missing` where a peer does not run."""

    name: str
    rows: tuple[Row, ...]
    measure: Callable[[Run], Measured]
    packages: Mapping[str, str]


class Missing(Exception):
    """A peer that is not here, or does not run; the reason in words."""


class MissingSome(Missing):
    """The same for some rows of a family; ``found`` has the others."""

    def __init__(self, found: Measured, reason: str) -> None:
        super().__init__(reason)
        self.found = found


def ratio_of(over: Iterable[float], under: Iterable[float], ours: str, theirs: str, note: str = "") -> Ratio:
    """The ratios over/under of measurements taken in turns, pair by pair."""
    values = [first / second for first, second in zip(over, under, strict=True)]
    return Ratio(statistics.median(values), min(values), max(values), len(values), ours, theirs, note)
