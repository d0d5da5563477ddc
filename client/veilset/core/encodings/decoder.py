"""From readings to a decision, a score or a probability, for every encoding alike; and what these are worth, as curves.

A decoder needs the release alone: the law of a reading for members and for non-members. Every sensible test accepts the readings
of the largest log-likelihood ratios (Neyman and Pearson), so a rule or a limit is a cut through the readings in the order of
their scores. Readings come in groups: what is known of an element without the vector. A caller's limit holds in each group by
itself, and so for every element and not only on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset._display import Displayed
from veilset.core.params import check_choice
from veilset.errors import InvalidInput, PoorUtility, must_be

Floats = NDArray[np.float64]


class Rule(StrEnum):
    """Which readings are accepted if the caller sets no limit to an error rate.

    best: those that members give more often than non-members, for the largest TPR - FPR. all-ones: only those that every member
    gives without noise, as in a plain Bloom filter.
    """

    BEST = "best"
    ALL_ONES = "all-ones"


@dataclass(frozen=True, slots=True)
class Limits:
    """At most one of: the largest FPR, the smallest TPR; each in (0, 1)."""

    max_false_positive_rate: float | None = None
    min_true_positive_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_false_positive_rate", "min_true_positive_rate"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < 1.0:
                raise must_be(name, "a number in (0, 1)", value)
        if self.max_false_positive_rate is not None and self.min_true_positive_rate is not None:
            raise InvalidInput(
                "min_true_positive_rate",
                "min_true_positive_rate and max_false_positive_rate exclude each other; give one",
            )

    @property
    def given(self) -> bool:
        """Whether there is a limit."""
        return self.max_false_positive_rate is not None or self.min_true_positive_rate is not None


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The law of a reading r = 0 … R-1, as far as the release alone shows it; all arrays have shape (R,).

    members, others: P(r | member) and P(r | non-member), float64, each of sum 1. scores: ln(members/others), finite also
    where both are 0. certain: the readings that every member would give without noise. groups: which readings belong
    together, integers; equal for all readings that one element can give. saturated: the vector shows nothing, every score
    is 0. names: what each reading is called, "" for one that cannot be. facts: what else the vector shows, name → value.
    """

    members: Floats
    others: Floats
    scores: Floats
    certain: NDArray[np.bool_]
    groups: NDArray[np.int64]
    saturated: bool = False
    names: tuple[str, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)

    def alike(self, reading: int) -> NDArray[np.int64]:
        """The readings that an element of this reading could have given; int64, their indices."""
        possible = (self.groups == self.groups[reading]) & ((self.members > 0.0) | (self.others > 0.0))
        return np.flatnonzero(possible)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decoder(Displayed):
    """A ready test for one release (or one planned release), with its error rates; made by `make_decoder`.

    accepts: bool (R,), the readings that are answered yes. true_positive_rate, false_positive_rate: of a random member and
    non-member.
    """

    law: Law
    accepts: NDArray[np.bool_]
    true_positive_rate: float
    false_positive_rate: float

    @property
    def advantage(self) -> float:
        """TPR - FPR."""
        return self.true_positive_rate - self.false_positive_rate

    @property
    def vectors(self) -> tuple[Decoder, ...]:
        """A decoder for each vector that is read: of the releases, then of removed elements."""
        return (self,)

    @property
    def first(self) -> Decoder:
        """The decoder of the base release alone."""
        return self

    @property
    def saturated(self) -> bool:
        """Whether the vector holds too many elements to show anything."""
        return self.law.saturated

    @property
    def saturated_parts(self) -> tuple[int, ...]:
        """The numbers in the generation of the releases that are saturated; the base has 0."""
        return (0,) if self.saturated else ()

    def decide(self, readings: ArrayLike) -> NDArray[np.bool_]:
        """Whether each element is answered yes; bool, of the shape of the readings."""
        return np.asarray(self.accepts[np.asarray(readings)])

    def scores(self, readings: ArrayLike) -> Floats:
        """Log-likelihood ratios (natural log, finite) of "member" against "not a member"."""
        return np.asarray(self.law.scores[np.asarray(readings)])

    def extremes(self, reading: Any) -> Floats:
        """The smallest and the largest score that an element of this reading could have; shape (2,)."""
        possible = self.law.scores[self.law.alike(reading)]
        return np.array([possible.min(), possible.max()])

    def posteriors(self, readings: ArrayLike, prior: ArrayLike) -> Floats:
        """P(member | reading) for a prior in [0, 1]: 1/(1 + exp(-(score + logit prior))); a prior of 0 or 1 stays."""
        return posteriors(self.scores(readings), prior)


def posteriors(scores: Floats, prior: ArrayLike) -> Floats:
    """1/(1 + exp(-(score + logit prior))). Raises InvalidInput for a prior outside [0, 1]."""
    chance = np.asarray(prior, dtype=np.float64)
    if not np.all((chance >= 0.0) & (chance <= 1.0)):
        raise must_be("prior", "a probability in [0, 1]")
    with np.errstate(divide="ignore"):
        odds = np.log(chance) - np.log1p(-chance)
    return np.asarray(np.exp(-np.logaddexp(0.0, -(scores + odds))))


def make_decoder(
    law: Law,
    *,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
) -> Decoder:
    """Choose the readings to accept, and predict the error rates.

    max_false_positive_rate: take the test of the largest TPR with at most this FPR, instead of the rule;
    min_true_positive_rate: the test of the smallest FPR with at least this TPR; at most one of the two, in (0, 1).
    Raises InvalidInput, and PoorUtility with what is possible if no reading of an ordinary element meets the limit.
    """
    rule = check_choice("rule", rule, Rule)
    limits = Limits(max_false_positive_rate, min_true_positive_rate)
    if limits.given and rule is not Rule.BEST:
        raise InvalidInput(
            "rule", f"rule {rule} takes no limit of an error rate; choose {Rule.BEST}, or leave the limit out"
        )
    accepts = law.certain.copy() if rule is Rule.ALL_ONES else law.scores > 0.0
    if limits.given:
        weights = np.bincount(law.groups, weights=law.members)
        for group in np.flatnonzero(np.bincount(law.groups)):
            accepts[law.groups == group] = _cut(law, law.groups == group, limits, refuse=group == np.argmax(weights))
    rates = (float(chances[accepts].sum()) for chances in (law.members, law.others))
    detected, mistaken = (min(1.0, rate) for rate in rates)
    return Decoder(law, accepts, detected, mistaken)


def _cut(law: Law, group: NDArray[np.bool_], limits: Limits, *, refuse: bool) -> NDArray[np.bool_]:
    """Which readings of a group to accept: the best ones, as many as the limit allows or as few as it needs; bool."""
    members, others = (chances[group] / (chances[group].sum() or 1.0) for chances in (law.members, law.others))
    order = np.lexsort((np.arange(len(members)), law.scores[group]))[::-1]
    detected, mistaken = np.cumsum(members[order]), np.cumsum(others[order])
    accepted = np.zeros(len(members), dtype=np.bool_)
    if limits.max_false_positive_rate is not None:
        count = int(np.searchsorted(mistaken, limits.max_false_positive_rate, side="right"))
        if refuse and not count:
            raise _refusal("max_false_positive_rate", limits.max_false_positive_rate, "smallest", float(mistaken[0]))
    else:
        needed = limits.min_true_positive_rate or 0.0
        count = min(int(np.searchsorted(detected, needed)) + 1, len(order))
        if refuse and count == len(order) > 1 and detected[-2] < needed:
            raise _refusal("min_true_positive_rate", needed, "largest", float(detected[-2]))
    accepted[order[:count]] = True
    return accepted


def _refusal(field: str, limit: float, extreme: str, possible: float) -> PoorUtility:
    return PoorUtility(
        f"{field} {limit:g} cannot be reached with this release: the {extreme} possible is {possible:.4g}. It needs a "
        "larger epsilon, a longer vector or another encoding; veilset plan with that limit finds them",
        **{field: limit, f"{extreme}_{field.split('_', 1)[1]}": possible},
    )


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
