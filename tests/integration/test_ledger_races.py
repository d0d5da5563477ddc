"""Threads, processes and SIGKILL against one ledger: never overspent, nothing committed is lost."""

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

from veilset.core.privacy.budget import NANO
from veilset.errors import BudgetExceeded

RACERS = 8
BUDGET = 100


def test_eight_processes_spend_the_budget_exactly(tmp_path: Path) -> None:
    """8 x 100 charges of 1 from one account of 100: 100 are granted, counted by who asked and by the ledger alike."""
    race_processes(tmp_path)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1, 21, 5))
def test_eight_processes_spend_the_budget_exactly_each_time(tmp_path: Path, first: int) -> None:
    """The same in 20 rounds, five at a time so that they share the processors."""
    for number in range(first, first + 5):
        (tmp_path / f"{number}").mkdir()
        race_processes(tmp_path / f"{number}")


def race_processes(folder: Path) -> None:
    """One round."""
    with new_ledger(folder) as ledger:
        for racer in range(RACERS):
            add_set(ledger, f"set-{racer}", account="shared", epsilon=BUDGET)
    workers = [start_worker("race", folder, f"set-{racer}") for racer in range(RACERS)]
    for worker in workers:
        assert read_line(worker) == "ready"
    granted = [int(worker.communicate("go\n")[0]) for worker in workers]
    assert sum(granted) == BUDGET, granted
    with open_ledger(folder) as ledger:
        account = ledger.get_account("shared")
        assert (account.spent_nano_epsilon, account.charges) == (BUDGET * NANO, BUDGET)
        assert [len(ledger.list_releases(f"set-{racer}", 0, 1000)) for racer in range(RACERS)] == granted


def test_eight_threads_spend_the_budget_exactly(tmp_path: Path) -> None:
    """The same through one instance, as in the server; and on one set, where the sequences are contended too."""
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
        assert len(ledger.releases_in_state("pending")) == charges == ledger.get_account("guests").spent_nano_epsilon
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
