"""The ledger against a model of a few dictionaries: any order of charges, deletions, raises and crashes."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_examples import LEDGER_ID, StoppedClock, description, new_ledger, open_ledger, release_of

from veilset.core.privacy.budget import NANO
from veilset.errors import AlreadyExists, BudgetExceeded, FailedPrecondition, NotFound
from veilset_server.records import Charge, Charged
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

NAMES = st.sampled_from(["a", "b"])
ACCOUNTS = st.sampled_from(["x", "y"])
EPSILONS = st.integers(1, 3 * NANO)
DELTAS = st.sampled_from([Fraction(0), Fraction(1, 10**9), Fraction(7, 10**12)])


class LedgerModel(RuleBasedStateMachine):
    """What must hold: amounts spent, budgets, sequences and the answers to repeated request ids."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-model-"))
        self.clock = StoppedClock()
        self.account_of: dict[str, str] = {}
        self.bound: dict[str, str] = {}
        self.budget: dict[str, tuple[int, Fraction]] = {}
        self.spent: dict[str, tuple[int, Fraction]] = {}
        self.sequence: dict[str, int] = {"a": 0, "b": 0}
        self.made: dict[tuple[int, str], int] = {}

    @initialize()
    def start(self) -> None:
        self.ledger = new_ledger(self.folder)

    @rule(name=NAMES, account=ACCOUNTS, epsilon=EPSILONS, delta=DELTAS)
    def create(self, name: str, account: str, epsilon: int, delta: Fraction) -> None:
        try:
            self.ledger.create_set(description(name, account), epsilon, delta, 10)
        except AlreadyExists:
            assert name in self.account_of
            return
        except FailedPrecondition:
            assert name not in self.account_of
            assert self.bound[name] != account
            return
        assert name not in self.account_of
        assert self.bound.setdefault(name, account) == account
        self.account_of[name] = account
        self.budget.setdefault(account, (epsilon, delta))
        self.spent.setdefault(account, (0, Fraction(0)))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        try:
            self.ledger.delete_set(name)
        except NotFound:
            assert name not in self.account_of
            return
        del self.account_of[name]

    @precondition(lambda self: self.account_of)
    @rule(data=st.data(), request=st.sampled_from(["r", "s", "t"]), epsilon=EPSILONS, delta=DELTAS)
    def charge(self, data: st.DataObject, request: str, epsilon: int, delta: Fraction) -> None:
        name = data.draw(st.sampled_from(sorted(self.account_of)))
        account = self.account_of[name]
        stored = self.ledger.get_set(name)
        sequence = self.ledger.next_sequence(name)
        assert sequence == self.sequence[name] + 1
        spent, total = self.spent[account], self.budget[account]
        after = (spent[0] + epsilon, spent[1] + delta)
        known = self.made.get((stored.set_id, request))
        found = self.ledger.find_release(name, request)
        assert (None if found is None else found.sequence) == known
        try:
            self.ledger.charge_release(release_of(stored, sequence, request), account, Charge(epsilon, delta), spent[0])
        except AlreadyExists:
            assert known is not None
        except BudgetExceeded:
            assert known is None
            assert after[0] > total[0] or after[1] > total[1]
        else:
            assert known is None
            assert after[0] <= total[0]
            assert after[1] <= total[1]
            self.spent[account] = after
            self.sequence[name] = sequence
            self.made[stored.set_id, request] = sequence

    @precondition(lambda self: self.account_of)
    @rule(data=st.data(), stale=st.integers(1, 5))
    def charge_by_a_stale_header(self, data: st.DataObject, stale: int) -> None:
        """As after a charge that came between: refused, whatever else would be right."""
        name = data.draw(st.sampled_from(sorted(self.account_of)))
        account = self.account_of[name]
        release = release_of(self.ledger.get_set(name), self.sequence[name] + 1, "stale")
        try:
            self.ledger.charge_release(release, account, Charge(1, Fraction(0)), self.spent[account][0] + stale)
        except FailedPrecondition:  # BudgetExceeded is one too
            return
        raise AssertionError("a header computed from another state was charged")

    @precondition(lambda self: self.budget)
    @rule(data=st.data(), epsilon=st.integers(0, NANO), delta=DELTAS)
    def raise_budget(self, data: st.DataObject, epsilon: int, delta: Fraction) -> None:
        account = data.draw(st.sampled_from(sorted(self.budget)))
        total = self.budget[account]
        self.budget[account] = (total[0] + epsilon, total[1] + delta)
        self.ledger.raise_budget(account, *self.budget[account], "more", 1)

    @rule(years=st.integers(-10, 10))
    def move_the_clock(self, years: int) -> None:
        """No amount depends on the time."""
        self.clock.time_us += years * 31_557_600_000_000

    @rule()
    def close_and_open(self) -> None:
        """Opening verifies the whole file."""
        self.ledger.close()
        self.ledger = SqliteLedger(self.folder / LEDGER_NAME, LEDGER_ID, self.clock)

    @rule()
    def crash(self) -> None:
        """What is in the files when the process dies is all there is: go on with a copy of them."""
        copy = Path(tempfile.mkdtemp(prefix="ledger-model-"))
        shutil.copytree(self.folder, copy, dirs_exist_ok=True)
        self.ledger.close()
        shutil.rmtree(self.folder)
        self.folder = copy
        self.ledger = open_ledger(copy)

    @invariant()
    def accounts_agree(self) -> None:
        for account, total in self.budget.items():
            there = self.ledger.get_account(account)
            assert (there.total_nano_epsilon, there.total_delta) == total
            assert (there.spent_nano_epsilon, there.spent_delta) == self.spent[account]

    @invariant()
    def every_charge_leaves_its_marks(self) -> None:
        """Also those of deleted sets, and no others."""
        spent = {account: sums for account, sums in self.spent.items() if sums[0]}
        sequences = {name: sequence for name, sequence in self.sequence.items() if sequence}
        assert self.ledger.charged() == Charged(sequences, spent)

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)


TestLedgerModel = LedgerModel.TestCase
TestLedgerModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.mark.faults
@pytest.mark.timeout(900)
class TestLedgerModelAtLength(LedgerModel.TestCase):  # type: ignore[misc, valid-type]  # made by hypothesis at run time
    """The same, 500 runs of 50 steps: half of them here, so that two processors share them."""

    settings = settings(max_examples=250, stateful_step_count=50, deadline=None)


@pytest.mark.faults
@pytest.mark.timeout(900)
class TestLedgerModelAtLengthAgain(LedgerModel.TestCase):  # type: ignore[misc, valid-type]
    """The other half."""

    settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
