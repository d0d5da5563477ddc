"""What a plan is asked for: four objectives, each a frozen record that says how good a pair of error rates is.

A merit is a float that grows with quality; -inf means that the objective's own limit is broken. All work on arrays, so
that the search can weigh many settings and thresholds at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.encodings.bloom.decoding_limits import Limits
from veilset.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class LargestAdvantage:
    """The largest TPR - FPR within the size limit."""

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """TPR - FPR."""
        return np.asarray(detected, dtype=np.float64) - np.asarray(mistaken, dtype=np.float64)

    def limits(self) -> Limits:
        """None."""
        return Limits()

    def __str__(self) -> str:
        return "the largest advantage"


@dataclass(frozen=True, slots=True)
class SmallestFalsePositiveRate:
    """The smallest FPR with TPR >= min_true_positive_rate, in (0, 1)."""

    min_true_positive_rate: float

    def __post_init__(self) -> None:
        self.limits()

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """-FPR."""
        reached = np.asarray(detected) >= self.min_true_positive_rate
        return np.where(reached, -np.asarray(mistaken, dtype=np.float64), -np.inf)

    def limits(self) -> Limits:
        """The decoder's limit."""
        return Limits(min_true_positive_rate=self.min_true_positive_rate)

    def __str__(self) -> str:
        return f"a true positive rate of at least {self.min_true_positive_rate:g}"


@dataclass(frozen=True, slots=True)
class LargestTruePositiveRate:
    """The smallest loss of TPR with FPR <= max_false_positive_rate, in (0, 1)."""

    max_false_positive_rate: float

    def __post_init__(self) -> None:
        self.limits()

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """TPR."""
        reached = np.asarray(mistaken) <= self.max_false_positive_rate
        return np.where(reached, np.asarray(detected, dtype=np.float64), -np.inf)

    def limits(self) -> Limits:
        """The decoder's limit."""
        return Limits(max_false_positive_rate=self.max_false_positive_rate)

    def __str__(self) -> str:
        return f"a false positive rate of at most {self.max_false_positive_rate:g}"


@dataclass(frozen=True, slots=True)
class SmallestVector:
    """The fewest bits that reach an efficiency (advantage over its limit) of at least min_efficiency, in (0, 1)."""

    min_efficiency: float

    def __post_init__(self) -> None:
        if not 0.0 < self.min_efficiency < 1.0:
            raise InvalidInput("min_efficiency", "a number in (0, 1)", self.min_efficiency)

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """TPR - FPR; the search stops at the first size that is good enough."""
        return np.asarray(detected, dtype=np.float64) - np.asarray(mistaken, dtype=np.float64)

    def limits(self) -> Limits:
        """None."""
        return Limits()

    def __str__(self) -> str:
        return f"an efficiency of at least {self.min_efficiency:g}"


Objective = LargestAdvantage | SmallestFalsePositiveRate | LargestTruePositiveRate | SmallestVector
