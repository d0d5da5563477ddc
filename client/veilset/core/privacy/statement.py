"""What a release promises, in words and for programs: every claim with its unit, its relation and its assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction

from veilset._display import Displayed
from veilset.core.params import Adjacency, Calibration
from veilset.core.privacy.budget import NANO, amount_text, charge_of, parse_delta, to_nano_epsilon
from veilset.core.privacy.limits import attacker_accuracy_limit
from veilset.core.release.header import ReleaseHeader

_ASSUMPTIONS = {
    Calibration.W_QUANTILE: "the hash behaves like a random oracle and its public seed was drawn independently of the data",
    Calibration.EXACT: "the hash behaves like a random oracle and its public seed was drawn independently of the data",
    Calibration.WORST_CASE: "nothing about the hash",
}


@dataclass(frozen=True, slots=True, repr=False)
class Statement(Displayed):
    """The promise of one release.

    unit, relation, assumption: in words. epsilon, delta: of this release and its count; with increments of the whole
    generation and its vectors of removed elements. increments: how many the generation may have. arrival_epsilon: the ε
    for the time at which an element arrived, if another user adds it too. total_epsilon, total_delta: all that was
    charged to the budget account up to and with this release. limit_epsilon, limit_delta: the limit of the account at
    that time. large_delta: whether δ allows a tenth of an element or more to be exposed outright among the ``capacity``
    elements that the release was made for. attacker_accuracy_limit: the largest share of right guesses, from this
    release, at one user's presence (replace-one: at which of two users' elements are in), if both are equally likely
    beforehand and all else is known; total_attacker_accuracy_limit: the same from everything on the account.
    """

    unit: str
    relation: str
    epsilon: float
    delta: float
    calibration: str
    assumption: str
    total_epsilon: float
    total_delta: float
    limit_epsilon: float
    limit_delta: float
    capacity: int
    large_delta: bool
    attacker_accuracy_limit: float
    total_attacker_accuracy_limit: float
    increments: int = 0
    arrival_epsilon: float = 0.0

    def __str__(self) -> str:
        return (
            f"Unit of privacy: {self.unit}. Relation: {self.relation}.\n"
            f"{self._subject} (ε = {amount_text(self.epsilon)}, δ = {amount_text(self.delta)})-differentially private for "
            f"that unit under that relation, calibrated by {self.calibration}, assuming {self.assumption}.\n"
            + self._arrival
            + self._delta_warning
            + "The promise is computational: the noise is drawn by AES-CTR under fresh keys, so it holds against anyone who "
            "cannot tell AES-CTR from random bits.\n"
            f"Spent on the budget account up to and with this release: ε = {amount_text(self.total_epsilon)}, "
            f"δ = {amount_text(self.total_delta)}; the account's limit was then ε = {amount_text(self.limit_epsilon)}, "
            f"δ = {amount_text(self.limit_delta)}.\n"
            "Anyone who guesses which of two such sets it was, holding both equally likely beforehand and knowing "
            f"everything else, is right at most {accuracy_text(self.epsilon, self.delta)} of the time from "
            f"{'this generation' if self.increments else 'this release'}, and "
            f"at most {accuracy_text(self.total_epsilon, self.total_delta)} from everything spent on the account."
        )

    @property
    def _subject(self) -> str:
        if not self.increments:
            return "This release is"
        return (
            f"This release belongs to a generation: a base release and up to {self.increments} increments, each element in at "
            "most one of them, so that an increment is not charged again. All of them together are"
        )

    @property
    def _arrival(self) -> str:
        if not self.increments:
            return ""
        return (
            "The unit is the whole history of its elements: additions, removals and expiry. When an element arrived, where "
            f"another user adds it too, is covered at ε = {amount_text(self.arrival_epsilon)}.\n"
        )

    @property
    def _delta_warning(self) -> str:
        if not self.large_delta:
            return ""
        exposed = amount_text(self.delta * self.capacity)
        return (
            f"This δ is large for {self.capacity} elements: it allows that {exposed} of them on average are exposed outright; "
            f"a δ far below 1/{self.capacity} does not.\n"
        )


def accuracy_text(epsilon: float, delta: float) -> str:
    """`attacker_accuracy_limit` in per cent, rounded up: two digits, more near 1, and 100% where less than a millionth of a per
    cent is missing, which is no limit in practice."""
    odds = math.exp(-epsilon)
    missing = 100.0 * (1.0 - delta) * odds / (1.0 + odds)
    if missing < 1e-6:
        return "100%"
    digits = 2 if missing >= 0.01 else 1 - math.floor(math.log10(missing))
    cut = Decimal(missing).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR)
    return f"{100 - cut}%"


def make_statement(header: ReleaseHeader) -> Statement:
    """The statement of a release, from its header alone."""
    privacy = header.privacy
    nano_epsilon, exact_delta = charge_of(privacy, header.count)
    if header.planned_increments and header.removals_epsilon:
        nano_epsilon += to_nano_epsilon(header.removals_epsilon)
    epsilon, delta = nano_epsilon / NANO, float(exact_delta)
    total_epsilon = header.total_nano_epsilon / NANO
    total_delta = float(min(parse_delta(header.total_delta), Fraction(1)))
    return Statement(
        unit=_unit(privacy.elements_per_user),
        relation=_relation(privacy.adjacency, privacy.elements_per_user, privacy.min_size),
        epsilon=epsilon,
        delta=delta,
        calibration=str(privacy.calibration),
        assumption=_assumption(privacy.calibration, header.shared_seed),
        total_epsilon=total_epsilon,
        total_delta=total_delta,
        limit_epsilon=header.limit_nano_epsilon / NANO,
        limit_delta=float(min(parse_delta(header.limit_delta), Fraction(1))),
        capacity=header.capacity,
        large_delta=10 * exact_delta * header.capacity >= 1,
        attacker_accuracy_limit=attacker_accuracy_limit(epsilon, delta),
        total_attacker_accuracy_limit=attacker_accuracy_limit(total_epsilon, total_delta),
        increments=header.planned_increments,
        arrival_epsilon=epsilon * (2 if privacy.adjacency is Adjacency.ADD_REMOVE else 1)
        if header.planned_increments
        else 0.0,
    )


def _assumption(calibration: Calibration, shared_seed: bool) -> str:
    text = _ASSUMPTIONS[calibration]
    if shared_seed and calibration is not Calibration.WORST_CASE:
        text += " (the set's owner brought the seed, so who chose the elements may have known it)"
    return text


def _unit(elements_per_user: int) -> str:
    return "one element" if elements_per_user == 1 else f"one user's at most {elements_per_user} elements"


def _relation(adjacency: Adjacency, elements_per_user: int, min_size: int) -> str:
    what = "one element" if elements_per_user == 1 else "one user's elements"
    if adjacency is Adjacency.ADD_REMOVE:
        text = f"{adjacency}, the set with and without {what}; its size is private"
    else:
        text = f"{adjacency}, {what} swapped for others; the size of the set is public"
    if min_size > 1:
        text += (
            f"; both sets hold at least {min_size} distinct elements, which their owner declared and the service does not "
            "check"
        )
    return text
