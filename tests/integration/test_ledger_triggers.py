"""The last line of defence: the ledger file itself refuses what no code above it should ever try."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_examples import add_set, charge_of, new_ledger, publish

from veilset.core.privacy.budget import NANO
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty one."""
    with new_ledger(tmp_path) as opened:
        yield opened


CHARGE_COLUMNS = (
    *(
        "position",
        "account",
        "set_name",
        "sequence",
        "set_id",
        "request_id",
        "manifest_sha256",
        "nano_epsilon",
        "delta",
    ),
    *("spent_nano_epsilon", "spent_delta", "reason", "at_us", "chain"),
)
A_RIGHT_CHARGE = {
    "position": "position + 1",
    "sequence": "sequence + 1",
    "request_id": "'r'",
    "nano_epsilon": "1",
    "delta": "'0'",
    "spent_nano_epsilon": "spent_nano_epsilon + 1",
}


def insert_charge(**expressions: str) -> str:
    """SQL for a charge after the only one there is, with some columns other than right."""
    values = A_RIGHT_CHARGE | expressions
    columns = ", ".join(values.get(name, name) for name in CHARGE_COLUMNS)
    return f"INSERT INTO charges SELECT {columns} FROM charges"  # noqa: S608 - made of this file's constants


def execute(ledger: SqliteLedger, statement: str) -> None:
    """Run SQL as the ledger's own code would."""
    with ledger._file.transaction() as transaction:
        transaction.execute(statement)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE charges SET nano_epsilon = 1", "cannot be changed"),
        ("UPDATE charges SET account = 'other'", "cannot be changed"),
        ("DELETE FROM charges", "cannot be deleted"),
        ("INSERT OR REPLACE INTO charges SELECT * FROM charges", "only grow at their end|not the sum"),
        (insert_charge(position="position + 2"), "only grow at their end"),
        (insert_charge(nano_epsilon="3000000000", spent_nano_epsilon="4000000000"), "pass the budget"),
        (insert_charge(delta="'1'", spent_delta="'1'"), "pass the budget"),
        (insert_charge(spent_nano_epsilon="1"), "not the sum"),
        (insert_charge(account="'nobody'", spent_nano_epsilon="1"), "pass the budget"),
        (insert_charge(sequence="sequence"), "UNIQUE constraint failed: charges.set_name, charges.sequence"),
        (insert_charge(request_id="request_id"), "UNIQUE constraint failed: charges.set_id, charges.request_id"),
        (insert_charge(nano_epsilon="0", spent_nano_epsilon="spent_nano_epsilon"), "only an increment"),
        ("UPDATE budgets SET total_nano_epsilon = 9000000000", "cannot be changed"),
        ("DELETE FROM budgets", "cannot be deleted"),
        (
            "INSERT INTO budgets SELECT position + 1, account, 1, '1', reason, at_us, chain FROM budgets",
            "cannot be lowered",
        ),
        ("INSERT INTO budgets SELECT 9, account, 5000000000, '1', reason, at_us, chain FROM budgets", "at their end"),
        ("DELETE FROM accounts", "cannot be deleted"),
        ("UPDATE accounts SET adjacency = 'replace-one'", "keeps its relation and unit"),
        ("DELETE FROM sets", "marked as deleted"),
        ("DELETE FROM releases", "cannot be deleted"),
        ("UPDATE releases SET manifest = x'00'", "keeps its manifest"),
    ],
)
def test_triggers_and_constraints_hold_without_the_code_above_them(
    ledger: SqliteLedger, statement: str, reason: str
) -> None:
    """Even code that forgets a check cannot overspend, take back or rewrite."""
    publish(ledger, add_set(ledger, epsilon=3), "a", charge_of())
    with pytest.raises(sqlite3.IntegrityError, match=reason):
        execute(ledger, statement)
    assert ledger.get_account("guests").spent_nano_epsilon == NANO


def test_the_triggers_let_a_right_charge_in(ledger: SqliteLedger) -> None:
    """So that the refusals above are for the column that was made wrong."""
    publish(ledger, add_set(ledger, epsilon=3), "a", charge_of())
    execute(ledger, insert_charge())
    assert ledger.get_account("guests").spent_nano_epsilon == NANO + 1


def test_a_program_without_exact_decimals_cannot_insert_a_charge(ledger: SqliteLedger, tmp_path: Path) -> None:
    """SQLite alone cannot add δ exactly, so it is not let in."""
    publish(ledger, add_set(ledger), "a", charge_of())
    ledger.close()
    plain = sqlite3.connect(tmp_path / LEDGER_NAME)
    try:
        with pytest.raises(sqlite3.OperationalError, match="no such function"):
            plain.execute(insert_charge())
    finally:
        plain.close()


def test_a_transaction_that_raises_has_changed_nothing(ledger: SqliteLedger) -> None:
    """Whatever the exception, also one that is not the database's; and the ledger goes on."""
    add_set(ledger)

    def fail_half_way() -> None:
        with ledger._file.transaction() as transaction:
            transaction.execute("INSERT INTO accounts VALUES ('half', 'add-remove', 1, x'')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    execute(ledger, "INSERT INTO accounts VALUES ('half', 'add-remove', 1, x'')")
    assert add_set(ledger, "next").set_id == 2
