"""What a release promises, in words and for machines. No claim without its unit, its relation and its assumption."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from veilset.core.params import Adjacency, Calibration
from veilset.core.privacy.budget import NANO, amount_text, charge_of, parse_delta
from veilset.core.privacy.limits import attacker_accuracy_limit
from veilset.core.release.header import ReleaseHeader

_ASSUMPTIONS = {
    Calibration.W_QUANTILE: "the hash behaves like a random oracle and its public seed was drawn independently of the data",
    Calibration.EXACT: "the hash behaves like a random oracle and its public seed was drawn independently of the data",
    Calibration.WORST_CASE: "nothing about the hash",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """The promise of one release.

    unit, relation, assumption: in words. epsilon, delta: of this release, a bought count included. total_epsilon,
    total_delta: everything charged to the budget account up to and with it. attacker_accuracy_limit: how often anybody
    who guesses one user's presence (replace-one: which of two users' elements are in) from this release can be right at
    most, both equally likely beforehand and all else known to them; total_attacker_accuracy_limit: the same from
    everything on the account.
    """

    unit: str
    relation: str
    epsilon: float
    delta: float
    calibration: str
    assumption: str
    total_epsilon: float
    total_delta: float
    attacker_accuracy_limit: float
    total_attacker_accuracy_limit: float

    def __str__(self) -> str:
        return (
            f"Unit of privacy: {self.unit}. Relation: {self.relation}.\n"
            f"This release is (ε = {amount_text(self.epsilon)}, δ = {amount_text(self.delta)})-differentially private for "
            f"that unit under that relation, calibrated by {self.calibration}, assuming {self.assumption}.\n"
            f"Spent on the budget account up to and with this release: ε = {amount_text(self.total_epsilon)}, "
            f"δ = {amount_text(self.total_delta)}.\n"
            "Whoever guesses which of two such sets it was, holding both equally likely beforehand and knowing "
            f"everything else, is right at most {accuracy_text(self.epsilon, self.delta)} of the time from this release, and "
            f"at most {accuracy_text(self.total_epsilon, self.total_delta)} from everything spent on the account."
        )


def accuracy_text(epsilon: float, delta: float) -> str:
    """`attacker_accuracy_limit` in per cent, never below it and never 100% for less than certainty.

    Two digits, more near 1, and below the millionth of a per cent what is missing: (1 - δ)/(1 + e^ε), cut off.
    """
    if delta >= 1.0:
        return "100%"
    odds = math.exp(-epsilon)
    if odds < sys.float_info.min:  # a float has too few digits for it, or none
        return "a little less than 100%"
    missing = 100.0 * (1.0 - delta) * odds / (1.0 + odds)
    if missing < 1e-6:
        return f"100% less {Context(2, ROUND_FLOOR).create_decimal(missing):.1e}%"
    digits = 2 if missing >= 0.01 else 1 - math.floor(math.log10(missing))
    cut = Decimal(missing).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR)
    return f"{100 - cut}%"


def make_statement(header: ReleaseHeader) -> Statement:
    """The statement of a release, from its header alone."""
    privacy = header.privacy
    nano_epsilon, exact_delta = charge_of(privacy, header.count)
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
        attacker_accuracy_limit=attacker_accuracy_limit(epsilon, delta),
        total_attacker_accuracy_limit=attacker_accuracy_limit(total_epsilon, total_delta),
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
