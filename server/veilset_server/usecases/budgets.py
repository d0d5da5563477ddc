"""Telling and raising budgets."""

from __future__ import annotations

from fractions import Fraction

from veilset.core.params import MAX_BUDGET_EPSILON, check_name
from veilset.core.privacy.budget import charge_delta, to_nano_epsilon
from veilset.errors import InvalidInput, must_be
from veilset_server.ports import Clock
from veilset_server.records import Account
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

MAX_REASON = 500


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
