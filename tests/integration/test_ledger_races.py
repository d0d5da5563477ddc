"""Threads and SIGKILL against one ledger: never overspent, nothing committed is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from storage_examples import (
    add_set,
    charge_of,
    kill,
    new_ledger,
    open_ledger,
    publish,
    read_line,
    start_worker,
)

from veilset.errors import BudgetExceeded
from veilset_server.records import ReleaseState

RACERS = 8
BUDGET = 100


def test_eight_threads_spend_the_budget_exactly(tmp_path: Path) -> None:
    """8 x 50 charges of 1 from one account of 100, on one set, where the sequences are contended too: 100 are granted."""
    with new_ledger(tmp_path) as ledger:
        stored = add_set(ledger, epsilon=BUDGET)
        granted = [0] * RACERS
        barrier = threading.Barrier(RACERS)

        def race(racer: int) -> None:
            barrier.wait()
            for number in range(50):
                try:
                    publish(ledger, stored, f"{racer}-{number}", charge_of())
                except BudgetExceeded:
                    continue
                granted[racer] += 1

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(granted) == BUDGET, granted
        releases = ledger.list_releases("guests", 0, 1000)
        assert [release.sequence for release in releases] == list(range(BUDGET, 0, -1))
    open_ledger(tmp_path).close()


@pytest.mark.parametrize("charges_before_the_kill", [1, 4, 23])
def test_charges_survive_a_kill(tmp_path: Path, charges_before_the_kill: int) -> None:
    """Every charge that returned is there after SIGKILL, at most one more (killed between commit and return), and it goes on."""
    with new_ledger(tmp_path) as ledger:
        add_set(ledger)
    worker = start_worker("charge", tmp_path, "guests")
    told = [read_line(worker) for _ in range(charges_before_the_kill)]
    told += kill(worker)
    with open_ledger(tmp_path) as ledger:
        charges = ledger.get_account("guests").charges
        assert charges in (len(told), len(told) + 1)
        assert (
            len(ledger.releases_in_state(ReleaseState.PENDING))
            == charges
            == ledger.get_account("guests").spent_nano_epsilon
        )
        assert publish(ledger, ledger.get_set("guests"), "after", charge_of()).sequence == charges + 1


def test_a_transaction_in_which_the_process_was_killed_is_undone(tmp_path: Path) -> None:
    """Its pages are in the file already; the journal beside it takes them back at the next open."""
    with new_ledger(tmp_path) as ledger:
        publish(ledger, add_set(ledger), "before", charge_of())
    before = (tmp_path / "ledger.db").read_bytes()
    worker = start_worker("crash", tmp_path, "half")
    assert read_line(worker) == "spilled"
    kill(worker)
    assert (tmp_path / "ledger.db").read_bytes() != before
    assert (tmp_path / "ledger.db-journal").stat().st_size > 0
    with open_ledger(tmp_path) as ledger:
        assert ledger.get_account("guests").charges == 1
        with ledger._file.transaction() as transaction:
            assert transaction.execute("SELECT name FROM accounts").fetchall() == [("guests",)]
    assert not (tmp_path / "ledger.db-journal").exists()
