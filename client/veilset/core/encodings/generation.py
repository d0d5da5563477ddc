"""A base release and its increments: the error rates of their answers together.

An element is in at most one release of a generation, and a reader says "member" if any release says so. With T increments,
each with the rates (t, f) of a single release, a non-member is answered yes with 1 - (1-f)^(T+1) and a member, who is in
one release and a non-member of the T others, with 1 - (1-t)·(1-f)^T. No other scheme of pure ε that cannot foresee
arrivals has better rates (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.params import check_integer

MAX_INCREMENTS = 1000

Floats = NDArray[np.float64]


class Merit(Protocol):
    """The part of a planner's objective that weighs a pair of error rates."""

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> Floats:
        """Larger is better; -inf where a limit is broken."""
        ...


def rates_after(detected: ArrayLike, mistaken: ArrayLike, increments: int) -> tuple[Floats, Floats]:
    """TPR and FPR of a generation after so many increments, from the rates of each single release; float64, same shape.

    A member of the base is meant, or of an increment: both have the same rate where all releases have one setting.
    """
    silent = 1.0 - np.asarray(mistaken, dtype=np.float64)
    missed = 1.0 - np.asarray(detected, dtype=np.float64)
    return 1.0 - missed * silent**increments, 1.0 - silent ** (increments + 1)


@dataclass(frozen=True, slots=True)
class ForGeneration:
    """An objective for a single release's rates that weighs what the whole generation has after ``increments``."""

    objective: Merit
    increments: int

    def __post_init__(self) -> None:
        check_integer("increments", self.increments, 0, MAX_INCREMENTS)

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> Floats:
        """The objective's merit of the generation's rates."""
        return self.objective.merit(*rates_after(detected, mistaken, self.increments))


def mixture_scores(scores: Sequence[ArrayLike], capacities: Sequence[int]) -> Floats:
    """The log-likelihood ratio of a member of any release: ln Σ w_i·e^(s_i), w_i the share of release i in the capacities.

    scores: one array for each release, all of one shape, float64. A member is in release i with probability w_i and gives
    every other release a non-member's reading, so the ratio is the weighted sum of the releases' own.
    """
    weights = np.log(np.asarray(capacities, dtype=np.float64)) - np.log(float(sum(capacities)))
    stacked = np.stack([np.asarray(part, dtype=np.float64) for part in scores])
    return np.asarray(np.logaddexp.reduce(stacked + weights.reshape(-1, *[1] * (stacked.ndim - 1)), axis=0))
