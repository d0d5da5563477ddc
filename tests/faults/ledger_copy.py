"""What a service's ledger says, as records."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path

from harness.ledgers import ledger_copy
from veilset.core.privacy.budget import parse_delta


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """One charge; request_id and manifest are None for a confirmed loss, state too."""

    account: str
    set_name: str
    sequence: int
    set_id: int | None
    request_id: str | None
    nano_epsilon: int
    delta: Fraction
    state: str | None
    manifest: bytes | None


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """charges in order; accounts: name → (nano-epsilon, delta) that it may spend; finished: set → its finished uploads."""

    charges: tuple[ChargeRow, ...]
    accounts: dict[str, tuple[int, Fraction]]
    finished: dict[str, frozenset[str]]


_COLUMNS = tuple(field.name for field in fields(ChargeRow))


def read_ledger(state: Path) -> LedgerContent:
    """The committed content of a service's ledger, of one moment; SQLite's own check and the manifests' hashes have to hold."""
    with ledger_copy(state) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return LedgerContent(_charges(database), _accounts(database), _finished(database))


def _charges(database: sqlite3.Connection) -> tuple[ChargeRow, ...]:
    columns = ", ".join((*_COLUMNS, "manifest_sha256"))
    query = f"SELECT {columns} FROM charges LEFT JOIN releases USING (position) ORDER BY position"  # noqa: S608 - constants
    rows = database.execute(query).fetchall()
    for row in rows:
        assert row[9] is None or hashlib.sha256(row[8]).digest() == row[9]
    return tuple(
        ChargeRow(**dict(zip(_COLUMNS, row[:-1], strict=True)) | {"delta": parse_delta(row[6])}) for row in rows
    )


def _accounts(database: sqlite3.Connection) -> dict[str, tuple[int, Fraction]]:
    rows = database.execute("SELECT account, total_nano_epsilon, total_delta FROM budgets ORDER BY position")
    return {account: (nano_epsilon, parse_delta(delta)) for account, nano_epsilon, delta in rows}


def _finished(database: sqlite3.Connection) -> dict[str, frozenset[str]]:
    names = [name for (name,) in database.execute("SELECT name FROM sets WHERE deleted = 0")]
    query = "SELECT upload_id FROM finished_uploads JOIN sets USING (set_id) WHERE sets.name = ? AND sets.deleted = 0"
    return {name: frozenset(row[0].removeprefix("/") for row in database.execute(query, (name,))) for name in names}


def orphaned_files(state: Path) -> set[str]:
    """Spools and runs of a running service's folder that are of no open upload and no set; one that just goes may be among
    them."""
    files = {f"{path.parent.name}/{path.name}" for folder in ("spools", "runs") for path in (state / folder).iterdir()}
    with ledger_copy(state) as database:
        spools = database.execute("SELECT 'spools/' || set_id || '-' || serial || '.spool' FROM uploads").fetchall()
        runs = database.execute("SELECT file FROM runs").fetchall()
    return files - {file for (file,) in spools + runs}
