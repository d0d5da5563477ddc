"""What the answers of a release are worth, as curves: every threshold's error rates, and what an answer does to a belief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilset.core.encodings.bloom.accuracy import binomial_tails
from veilset.core.encodings.bloom.decoding import Decoder


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The test "at least ``threshold`` ones" on an ordinary element, one whose positions are all distinct."""

    threshold: int
    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True, slots=True)
class Belief:
    """Probability of membership before (``prior``) and after: a yes, a no, all positions read 1, none does."""

    prior: float
    after_yes: float
    after_no: float
    after_all_ones: float
    after_no_ones: float


def operating_points(decoder: Decoder) -> list[OperatingPoint]:
    """Every threshold from d + 1 (never yes) down to 0 (always yes), d the distinct positions: the points of the ROC curve."""
    distinct = min(decoder.hashes, decoder.bits)
    detected = binomial_tails(distinct, 1.0 - decoder.flip_probability)
    mistaken = binomial_tails(distinct, decoder.ones_fraction)
    return [
        OperatingPoint(threshold, float(mistaken[threshold]), float(detected[threshold]))
        for threshold in range(distinct + 1, -1, -1)
    ]


def beliefs(decoder: Decoder, priors: Sequence[float]) -> list[Belief]:
    """What each prior becomes. A yes is P(member | yes) = TPR·π / (TPR·π + FPR·(1 - π)), a no likewise with 1 - TPR, 1 - FPR;
    an answer that cannot happen leaves the prior."""
    distinct = min(decoder.hashes, decoder.bits)
    ones = np.array([distinct, 0])
    found = []
    for prior in priors:
        all_ones, no_ones = decoder.posteriors(ones, np.full(2, distinct), prior).tolist()
        yes = _bayes(prior, decoder.true_positive_rate, decoder.false_positive_rate)
        no = _bayes(prior, 1.0 - decoder.true_positive_rate, 1.0 - decoder.false_positive_rate)
        found.append(Belief(prior, yes, no, all_ones, no_ones))
    return found


def _bayes(prior: float, member: float, stranger: float) -> float:
    """P(member | what has these probabilities)."""
    both = prior * member + (1.0 - prior) * stranger
    return prior * member / both if both > 0.0 else prior
