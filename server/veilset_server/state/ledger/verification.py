"""Whether an opened ledger is what was once written: pages, tables, sums, hashes. Nothing is repaired, only refused.

What this cannot see is an older copy of the whole file put in place of the present one; that takes a witness elsewhere.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from veilset.core.privacy.budget import parse_delta
from veilset.errors import StateCorrupted
from veilset_server.state.ledger.budgets import (
    BUDGET_COLUMNS,
    CHARGE_COLUMNS,
    SELECT_ACCOUNTS,
    account_from_row,
    read_ledger_id,
)
from veilset_server.state.ledger.contents import (
    SELECT_CONTENTS,
    SELECT_GENERATIONS,
    SELECT_RUNS,
    SELECT_SMALL,
    contents_from_row,
    generation_from_row,
    run_from_row,
    small_from_row,
)
from veilset_server.state.ledger.releases import SELECT_COUNTS, count_from_row
from veilset_server.state.ledger.schema import Row, Value, first_link, next_link
from veilset_server.state.ledger.sets import SELECT_SETS, set_from_row
from veilset_server.state.ledger.uploads import SELECT_UPLOADS, upload_from_row


@dataclass(slots=True)
class _Sum:
    """One account while its rows are added up."""

    total_nano_epsilon: int = 0
    total_delta: Fraction = Fraction(0)
    spent_nano_epsilon: int = 0
    spent_delta: Fraction = Fraction(0)


def verify_ledger(transaction: sqlite3.Connection, path: Path, ledger_id: str) -> None:
    """Raises StateCorrupted naming the file and what is wrong. Reads all of it: about 10 µs a row."""
    _check_pages(transaction, path)
    if read_ledger_id(transaction) != ledger_id:
        raise _wrong(path, "format.json shows that it belongs to another state folder")
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for row in _chained(transaction, path, "budgets", BUDGET_COLUMNS, ledger_id):
        account = sums[row["account"]]
        total_nano_epsilon, total_delta = row["total_nano_epsilon"], parse_delta(row["total_delta"])
        if total_nano_epsilon < account.total_nano_epsilon or total_delta < account.total_delta:
            raise _wrong(path, f"budgets row {row['position']}: lowers a budget")
        account.total_nano_epsilon, account.total_delta = total_nano_epsilon, total_delta
    sequences: defaultdict[str, int] = defaultdict(int)
    for row in _chained(transaction, path, "charges", CHARGE_COLUMNS, ledger_id):
        _add_charge(path, row, sums[row["account"]], sequences)
    _check_releases(transaction, path)
    tables: tuple[tuple[str, Callable[[Row], object]], ...] = (
        (SELECT_ACCOUNTS, account_from_row),
        (SELECT_SETS, set_from_row),
        (SELECT_CONTENTS, contents_from_row),
        (SELECT_UPLOADS, upload_from_row),
        (SELECT_RUNS, run_from_row),
        (SELECT_SMALL, small_from_row),
        (SELECT_COUNTS, count_from_row),
        (SELECT_GENERATIONS, generation_from_row),
    )  # finished ids, of which there are many, are checked when one is asked for
    for query, from_row in tables:
        for row in transaction.execute(query):
            from_row(row)


def _check_pages(transaction: sqlite3.Connection, path: Path) -> None:
    complaints = [str(row[0]) for row in transaction.execute("PRAGMA integrity_check")]
    if complaints != ["ok"]:
        raise _wrong(path, complaints[0])
    if transaction.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise _wrong(path, "a row points to one that is missing")


def _chained(
    transaction: sqlite3.Connection, path: Path, table: str, columns: tuple[str, ...], ledger_id: str
) -> Iterator[dict[str, Any]]:
    link = first_link(table, ledger_id)
    rows = transaction.execute(f"SELECT {', '.join(columns)}, chain FROM {table} ORDER BY position")
    for expected_position, row in enumerate(rows, start=1):
        values: tuple[Value, ...] = row[:-1]
        link = next_link(link, *values)
        if values[0] != expected_position or row[-1] != link:
            raise _wrong(path, f"{table} row {expected_position}: the hash chain is broken")
        yield dict(zip(columns, values, strict=True))


def _add_charge(path: Path, row: dict[str, Any], account: _Sum, sequences: defaultdict[str, int]) -> None:
    account.spent_nano_epsilon += row["nano_epsilon"]
    account.spent_delta += parse_delta(row["delta"])
    if (account.spent_nano_epsilon, account.spent_delta) != (
        row["spent_nano_epsilon"],
        parse_delta(row["spent_delta"]),
    ):
        raise _wrong(path, f"charges row {row['position']}: the sums do not add up")
    if account.spent_nano_epsilon > account.total_nano_epsilon or account.spent_delta > account.total_delta:
        raise _wrong(path, f"charges row {row['position']}: passes the budget")
    if row["sequence"] <= sequences[row["set_name"]]:
        raise _wrong(path, f"charges row {row['position']}: the sequence does not rise")
    sequences[row["set_name"]] = row["sequence"]


def _check_releases(transaction: sqlite3.Connection, path: Path) -> None:
    rows = transaction.execute(
        "SELECT charges.position, charges.manifest_sha256, releases.manifest "
        "FROM charges LEFT JOIN releases USING (position) ORDER BY charges.position"
    )
    for position, expected, manifest in rows:
        if expected != (None if manifest is None else hashlib.sha256(manifest).digest()):
            raise _wrong(path, f"releases row {position}: the manifest is not the one that was charged")


def _wrong(path: Path, what: str) -> StateCorrupted:
    return StateCorrupted(f"{path}: damaged ({what})", file=path.name)
