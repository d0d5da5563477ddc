"""What the ledger collector reads from a real ledger, and from one that is damaged under it."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_examples import add_set, charge_of, new_ledger, publish

from harness.metrics import Samples, value
from veilset_server.metrics import collectors
from veilset_server.metrics.collectors import LedgerCollector
from veilset_server.records import ReleaseState


@pytest.fixture(autouse=True)
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is given twice here."""
    monkeypatch.setattr(collectors, "FRESH_SECONDS", -1.0)


def collected(collector: LedgerCollector) -> Samples:
    """Its samples."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_pending_published_and_shared_accounts(tmp_path: Path) -> None:
    """The newest published release counts; two sets of one account share a line; a set without a release has none."""
    with new_ledger(tmp_path) as ledger:
        collector = LedgerCollector(ledger, 10)
        one, _ = add_set(ledger, "one", account="shared"), add_set(ledger, "two", account="shared")
        for request_id in ("a", "b", "c"):
            release = publish(ledger, one, request_id, charge_of())
            if request_id != "c":
                ledger.mark_release(one.set_id, release.sequence, ReleaseState.PUBLISHED)
        found = collected(collector)
        assert value(found, "veilset_release_sequence", set="one") == 2
        assert ("veilset_release_sequence", (("set", "two"),)) not in found
        assert value(found, "veilset_releases_pending") == 1
        accounts = [dict(labels)["account"] for name, labels in found if name == "veilset_budget_epsilon_left"]
        assert accounts == ["shared"]
        spent = value(found, "veilset_budget_epsilon", account="shared") - 3
        assert value(found, "veilset_budget_epsilon_left", account="shared") == pytest.approx(spent)
        ledger.delete_set("one")
        assert ("veilset_set_release_epsilon", (("account", "shared"), ("set", "one"))) not in collected(collector)


def test_a_damaged_ledger_is_told_and_ends_nothing(tmp_path: Path) -> None:
    """One line that says so, until it can be read again."""
    with new_ledger(tmp_path) as ledger:
        add_set(ledger, "one")
        collector = LedgerCollector(ledger, 10)
        assert value(collected(collector), "veilset_ledger_readable") == 1
        with ledger._file.transaction() as transaction:
            whole = transaction.execute("SELECT seal FROM sets").fetchone()
            transaction.execute("UPDATE sets SET seal = x'00'")
        assert collected(collector) == {("veilset_ledger_readable", ()): 0.0}
        with ledger._file.transaction() as transaction:
            transaction.execute("UPDATE sets SET seal = ?", whole)
        assert value(collected(collector), "veilset_ledger_readable") == 1
