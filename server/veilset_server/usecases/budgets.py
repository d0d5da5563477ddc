"""Budget accounts: read and raised; what a release costs, and the noisy count that may be bought with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from veilset.core.params import MAX_BUDGET_EPSILON, Adjacency, PrivacyParameters, check_delta, check_epsilon, check_name
from veilset.core.privacy.budget import charge_delta, charge_of, to_nano_epsilon
from veilset.core.privacy.counts import CountNoise, calibrate_count, exact_count
from veilset.core.release.header import NoisyCount
from veilset.errors import InvalidInput, must_be
from veilset_server.ports import Clock
from veilset_server.records import Account, Charge, SetDescription
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

MAX_REASON = 500

DEFAULT_COUNT_EPSILON = 0.05
_SURE = 20.7
"""Scales of noise that a count falls short by with probability e^-20.7 / 2 = 5·10^-10."""

FREE = Charge(0, Fraction(0))
"""An increment, which was paid for with its base."""


class Budgets:
    """Reads budget accounts and raises them; nothing lowers one."""

    def __init__(self, ledger: SqliteLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    def get(self, account: str, set_name: str) -> Account:
        """The account of that name, or the one that a set is charged to. Raises InvalidInput, NotFound."""
        if bool(account) == bool(set_name):
            raise InvalidInput("account", "account and set_name exclude each other; give exactly one of them")
        if set_name:
            account = self._ledger.get_set(set_name).description.account
        return self._ledger.get_account(check_name("account", account))

    def raise_to(self, account: str, epsilon: float, delta: float | None, reason: str) -> Account:
        """Set new totals, at least the present ones; epsilon 0 and delta None keep theirs. Raises InvalidInput, NotFound."""
        present = self._ledger.get_account(check_name("account", account))
        if not 0 <= epsilon <= MAX_BUDGET_EPSILON:
            raise must_be("epsilon", f"a number in [0, {MAX_BUDGET_EPSILON:g}]", epsilon)
        if not 1 <= len(reason.strip()) <= MAX_REASON:
            raise must_be("reason", f"1 to {MAX_REASON} characters")
        if delta is not None and not 0 <= delta <= 1:
            raise must_be("delta", "a number in [0, 1]", delta)
        nano = to_nano_epsilon(epsilon) if epsilon else present.total_nano_epsilon
        total_delta: Fraction = present.total_delta if delta is None else charge_delta(delta)
        return self._ledger.raise_budget(account, nano, total_delta, reason.strip(), self._clock.now_us())


@dataclass(frozen=True, slots=True)
class CountPurchase:
    """What the caller wants to spend on a count."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon("count.epsilon", self.epsilon)
        check_delta("count.delta", self.delta)


def count_noise(description: SetDescription, purchase: CountPurchase) -> CountNoise:
    """The noise for the number of distinct digests.

    One user moves that number by at most elements_per_user, whatever the hash; so the count needs no assumption. Raises
    InvalidInput under replace-one, where the size of the set is public and a noisy count of it would be a pretence.
    """
    privacy = description.privacy
    if privacy.adjacency is not Adjacency.ADD_REMOVE:
        raise InvalidInput(
            "count", f"count is not possible under {privacy.adjacency}, where the size is public; leave it out"
        )
    sensitivity = privacy.elements_per_user
    noise = calibrate_count(purchase.epsilon, purchase.delta, sensitivity)
    if noise.delta <= purchase.delta:
        return noise
    # Charged is the decimal that a float stands for; here it has to be at least what the 64-bit grid costs.
    return replace(noise, delta=math.nextafter(noise.delta, 1.0))


def capacity_noise(privacy: PrivacyParameters, count_epsilon: float) -> tuple[PrivacyParameters, CountNoise]:
    """What the vector promises once ``count_epsilon`` of its ε has bought a count, and that count's noise (δ = 0).

    Raises InvalidInput where too little is left, or under replace-one, where the size is public and has to be declared.
    """
    if privacy.adjacency is not Adjacency.ADD_REMOVE:
        raise InvalidInput("size", f"size is needed under {privacy.adjacency}, where it is public")
    if not count_epsilon < privacy.epsilon:
        raise must_be("count_epsilon", f"below epsilon ({privacy.epsilon:g}), which it is a part of", count_epsilon)
    noise = exact_count(count_epsilon, privacy.elements_per_user)
    return replace(privacy, epsilon=float(Decimal(repr(privacy.epsilon)) - Decimal(repr(count_epsilon)))), noise


def counted(value: int, noise: CountNoise) -> NoisyCount:
    """A header's count of this value."""
    return NoisyCount(value, str(noise.mechanism), noise.scale, noise.sensitivity, noise.epsilon, noise.delta)


def sure_capacity(count: NoisyCount) -> int:
    """A number of elements that is not below the true one, but for a chance of 5·10^-10; at least 1."""
    return max(1, count.value + math.ceil(_SURE * count.scale))


def price(privacy: PrivacyParameters, noise: CountNoise | None = None, removals_epsilon: float = 0.0) -> Charge:
    """What a release costs, its count and its generation's vectors of removed elements included."""
    nano_epsilon, delta = charge_of(privacy, noise)
    return Charge(nano_epsilon + (to_nano_epsilon(removals_epsilon) if removals_epsilon else 0), delta)
