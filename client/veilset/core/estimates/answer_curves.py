"""What the answers of a release are worth, as curves: the error rates of every test, and what an answer does to a prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilset.core.encodings.decoder import Decoder


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The test of an ordinary element that accepts the reading ``accepts_from`` and all that speak more for a member."""

    accepts_from: str
    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Probability of membership before (``prior``) and after: a yes, a no, the reading that speaks most for a member, and
    the one that speaks least for it."""

    prior: float
    after_yes: float
    after_no: float
    largest: float
    smallest: float


def operating_points(decoder: Decoder) -> list[OperatingPoint]:
    """Every test of an ordinary element, from never yes to always yes: the points of the ROC curve."""
    law = decoder.law
    ordinary = _ordinary(decoder)
    order = ordinary[np.lexsort((ordinary, law.scores[ordinary]))][::-1]
    detected, mistaken = (np.cumsum(chances[order]) / chances[order].sum() for chances in (law.members, law.others))
    points = [OperatingPoint("never", 0.0, 0.0)]
    return points + [
        OperatingPoint(law.names[reading], float(false), float(true))
        for reading, false, true in zip(order.tolist(), mistaken, detected, strict=True)
    ]


def posterior_rows(decoder: Decoder, priors: Sequence[float]) -> list[Posterior]:
    """What each prior becomes. A yes is P(member | yes) = TPR·π / (TPR·π + FPR·(1 - π)), a no likewise with 1 - TPR, 1 - FPR;
    an answer that cannot happen leaves the prior."""
    found = []
    for prior in priors:
        possible = decoder.first.posteriors(_ordinary(decoder), prior)
        yes = _bayes(prior, decoder.true_positive_rate, decoder.false_positive_rate)
        no = _bayes(prior, 1.0 - decoder.true_positive_rate, 1.0 - decoder.false_positive_rate)
        found.append(Posterior(prior, yes, no, float(possible.max()), float(possible.min())))
    return found


def _ordinary(decoder: Decoder) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The readings of an ordinary element: of the group that most elements are in."""
    return decoder.law.alike(int(np.argmax(np.bincount(decoder.law.groups, decoder.law.members)[decoder.law.groups])))


def _bayes(prior: float, member: float, other: float) -> float:
    """P(member | what has these probabilities)."""
    both = prior * member + (1.0 - prior) * other
    return prior * member / both if both > 0.0 else prior
