"""Limits of any test on an (ε, δ)-private release, whatever its encoding: functions of the promise alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.errors import must_be


def advantage_limit(epsilon: float, delta: float) -> float:
    """Largest TPR - FPR that any test on an (ε, δ) release can have: (e^ε - 1 + 2δ)/(e^ε + 1), at most 1.

    epsilon >= 0 and finite (a total over many releases may be large), delta in [0, 1]. Written as
    tanh(ε/2) + 2δ·e^-ε/(1 + e^-ε), which does not overflow. It adds up the two constraints of Kairouz, Oh and
    Viswanath, "The Composition Theorem for Differential Privacy" (2015), theorem 2.1:
    FPR + e^ε·FNR >= 1 - δ and e^ε·FPR + FNR >= 1 - δ give FPR + FNR >= 2(1 - δ)/(1 + e^ε).
    """
    _check_guarantee(epsilon, delta)
    decay = math.exp(-epsilon)
    return min(1.0, math.tanh(epsilon / 2.0) + 2.0 * delta * decay / (1.0 + decay))


def attacker_accuracy_limit(epsilon: float, delta: float) -> float:
    """Largest share of right guesses at one element's presence: (e^ε + δ)/(1 + e^ε).

    Presence and absence are held equally likely beforehand and the attacker may know everything else. Then the accuracy
    is (1 + TPR - FPR)/2, so this is (1 + `advantage_limit`)/2, with the same source; at δ = 0 it is e^ε/(1 + e^ε).
    """
    return (1.0 + advantage_limit(epsilon, delta)) / 2.0


def true_positive_limit(epsilon: float, delta: float, false_positive_rate: ArrayLike) -> NDArray[np.float64]:
    """Largest TPR that an (ε, δ) release allows at each FPR: min(1, e^ε·FPR + δ, 1 - e^-ε·(1 - δ - FPR)).

    The two lines are the constraints quoted at `advantage_limit`, solved for 1 - FNR. false_positive_rate: any shape,
    in [0, 1].
    """
    _check_guarantee(epsilon, delta)
    rate = np.asarray(false_positive_rate, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        steep = np.where(rate > 0.0, np.exp(epsilon) * rate, 0.0) + delta
    shallow = 1.0 - math.exp(-epsilon) * (1.0 - delta - rate)
    return np.minimum(1.0, np.minimum(steep, shallow))


def delta_is_large(delta: float, min_size: int) -> bool:
    """Whether δ deserves a warning: above 1/(10·min_size), where it would excuse exposing an element outright."""
    return delta > 1 / (10 * min_size)


def _check_guarantee(epsilon: float, delta: float) -> None:
    if not 0.0 <= epsilon < math.inf:
        raise must_be("epsilon", "a finite number, at least 0", epsilon)
    if not 0.0 <= delta <= 1.0:
        raise must_be("delta", "a number in [0, 1]", delta)
