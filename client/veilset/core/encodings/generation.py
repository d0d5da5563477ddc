"""A base release and its increments: the error rates of their answers together.

An element is in at most one release of a generation, and a reader says "member" if any release says so. With T increments,
each with the rates (t, f) of a single release, a non-member is answered yes with 1 - (1-f)^(T+1) and a member, who is in
one release and a non-member of the T others, with 1 - (1-t)·(1-f)^T. No other scheme of pure ε that cannot foresee
arrivals has better rates (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.encodings.interface import Parameters, pure
from veilset.core.encodings.planning import LargestAdvantage, PlanRequest
from veilset.core.params import PrivacyParameters, check_integer
from veilset.errors import InvalidInput

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


def check_generation(encoding: Parameters, charged: PrivacyParameters) -> None:
    """Raise InvalidInput unless increments may follow a base release of that encoding and promise."""
    if charged.delta:
        raise InvalidInput(
            "increments",
            f"increments need a promise with delta 0, and {encoding} keep {charged.epsilon:g} with delta {charged.delta:g} only; "
            "choose the encoding linear, or the calibration worst-case",
        )
    if charged.adjacency not in encoding.GENERATIONS:
        raise InvalidInput(
            "increments",
            f"with the encoding {encoding.encoding} increments keep no promise under {charged.adjacency}, as a swap changes two "
            "of them; choose the encoding linear, or the relation add-remove",
        )


def for_increment(base: Parameters, privacy: PrivacyParameters, *, made_for: int, size: int) -> Parameters:
    """The parameters of an increment of ``size`` new elements, with the promise and about the rates of its base.

    base: of the base release, which was ``made_for`` so many elements under ``privacy``, its ``charged`` promise. The increment
    keeps that promise with δ = 0. Never refuses.
    """
    return base.resized(pure(privacy), made_for=made_for, capacity=base.capacity_for(size))


def for_removals(base: Parameters, privacy: PrivacyParameters, removals_epsilon: float, *, size: int) -> Parameters:
    """The parameters of an increment's second vector, of up to ``size`` removed elements; of the base's family.

    privacy: the base's, of which ``removals_epsilon`` takes the place of epsilon; δ = 0. Raises PoorUtility where that is too
    little for any answer.
    """
    promise = replace(pure(privacy), epsilon=removals_epsilon)
    return type(base).plan(PlanRequest(size, promise, objective=LargestAdvantage(), min_efficiency=0.0)).parameters


def mixture_scores(scores: Sequence[ArrayLike], capacities: Sequence[int]) -> Floats:
    """The log-likelihood ratio of a member of any release: ln Σ w_i·e^(s_i), w_i the share of release i in the capacities.

    scores: one array for each release, all of one shape, float64. A member is in release i with probability w_i and gives
    every other release a non-member's reading, so the ratio is the weighted sum of the releases' own.
    """
    weights = np.log(np.asarray(capacities, dtype=np.float64)) - np.log(float(sum(capacities)))
    stacked = np.stack([np.asarray(part, dtype=np.float64) for part in scores])
    return np.asarray(np.logaddexp.reduce(stacked + weights.reshape(-1, *[1] * (stacked.ndim - 1)), axis=0))
