"""The ledger's tables, and the hashes over their rows.

Amounts of ε are integer nano-units, amounts of δ exact decimal texts (`core.privacy.budget`), times microseconds since
the Unix epoch. ``budgets`` and ``charges`` only ever grow: rows cannot be changed or deleted, and each row's ``chain`` is
the hash of the row and of the chain before it, so that `verification` finds any later change. ``seal`` is the hash
of a row that may change. What an account may spend is its newest row in ``budgets``; what it has spent is in its newest row
in ``charges``.
"""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

from veilset.errors import StateCorrupted

APPLICATION_ID = 0x7665_696C
"""Marks the SQLite file as a veilset ledger."""

WITHIN_TOTAL = "veilset_within_total"
"""SQL function (spent δ text, total δ text) → 0 or 1, which the connection provides: SQLite has no exact decimals. A
program without it cannot insert a charge at all."""

OWNER = "CASE WHEN json_valid(description) THEN COALESCE(json_extract(description, '$.owner'), '') ELSE '' END"
"""SQL for who made a set, in a row of ``sets``; damaged text is for whoever reads the row to notice, not for an index."""

STATEMENTS = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    """CREATE TABLE ledger (
        ledger_id TEXT NOT NULL PRIMARY KEY,
        anchor_id TEXT NOT NULL DEFAULT ''
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE sets (
        set_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        account TEXT NOT NULL REFERENCES accounts (name),
        description TEXT NOT NULL,
        deleted INTEGER NOT NULL CHECK (deleted IN (0, 1)),
        seal BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX live_set_names ON sets (name) WHERE deleted = 0",
    "CREATE INDEX set_names ON sets (name)",
    f"CREATE INDEX live_sets_by_owner ON sets ({OWNER}) WHERE deleted = 0",
    """CREATE TRIGGER sets_stay BEFORE DELETE ON sets
        BEGIN SELECT RAISE(ABORT, 'sets are marked as deleted, so that no set_id comes again'); END""",
    """CREATE TABLE contents (
        set_id INTEGER PRIMARY KEY REFERENCES sets (set_id),
        serial INTEGER NOT NULL CHECK (serial >= 0),
        operations INTEGER NOT NULL CHECK (operations >= 0),
        seal BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE uploads (
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        upload_id TEXT NOT NULL,
        part INTEGER NOT NULL CHECK (part >= 0),
        serial INTEGER NOT NULL,
        operation TEXT NOT NULL CHECK (operation IN ('add', 'remove', 'replace')),
        state TEXT NOT NULL CHECK (state IN ('open', 'sealed')),
        count INTEGER NOT NULL CHECK (count >= 0),
        checksum BLOB NOT NULL,
        opened_at_us INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (set_id, upload_id, part)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE finished_uploads (
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        upload_id TEXT NOT NULL,
        operation TEXT NOT NULL CHECK (operation IN ('add', 'remove', 'replace')),
        count INTEGER NOT NULL CHECK (count >= 0),
        checksum BLOB NOT NULL,
        at_us INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (set_id, upload_id)
    ) STRICT, WITHOUT ROWID""",
    # One row a file: an upload in parts has several, all of one number.
    """CREATE TABLE runs (
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        number INTEGER NOT NULL,
        file TEXT NOT NULL UNIQUE,
        operation TEXT NOT NULL CHECK (operation IN ('add', 'remove', 'folded')),
        sent INTEGER NOT NULL CHECK (sent >= 0),
        checksum BLOB NOT NULL CHECK (length(checksum) = 16),
        removes INTEGER NOT NULL CHECK (removes IN (0, 1)),
        day INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (set_id, number, file)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE small_uploads (
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        number INTEGER NOT NULL,
        operation TEXT NOT NULL CHECK (operation IN ('add', 'remove')),
        digests BLOB NOT NULL CHECK (length(digests) % 8 = 0),
        day INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (set_id, number)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE leftovers (file TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID",
    """CREATE TABLE accounts (
        name TEXT NOT NULL PRIMARY KEY,
        adjacency TEXT NOT NULL,
        elements_per_user INTEGER NOT NULL CHECK (elements_per_user >= 1),
        seal BLOB NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TRIGGER accounts_not_changed BEFORE UPDATE ON accounts
        BEGIN SELECT RAISE(ABORT, 'an account keeps its relation and unit'); END""",
    """CREATE TRIGGER accounts_not_deleted BEFORE DELETE ON accounts
        BEGIN SELECT RAISE(ABORT, 'accounts cannot be deleted'); END""",
    """CREATE TABLE budgets (
        position INTEGER PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (name),
        total_nano_epsilon INTEGER NOT NULL CHECK (total_nano_epsilon >= 0),
        total_delta TEXT NOT NULL,
        reason TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        chain BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX budgets_by_account ON budgets (account, position)",
    """CREATE TRIGGER budgets_in_order BEFORE INSERT ON budgets
        WHEN NEW.position <> (SELECT COALESCE(MAX(position), 0) + 1 FROM budgets)
        BEGIN SELECT RAISE(ABORT, 'budgets only grow at their end'); END""",
    """CREATE TRIGGER budgets_never_fall BEFORE INSERT ON budgets
        WHEN NEW.total_nano_epsilon < (SELECT COALESCE(MAX(total_nano_epsilon), 0) FROM budgets WHERE account = NEW.account)
        BEGIN SELECT RAISE(ABORT, 'a budget cannot be lowered'); END""",
    """CREATE TRIGGER budgets_not_changed BEFORE UPDATE ON budgets
        BEGIN SELECT RAISE(ABORT, 'budgets cannot be changed'); END""",
    """CREATE TRIGGER budgets_not_deleted BEFORE DELETE ON budgets
        BEGIN SELECT RAISE(ABORT, 'budgets cannot be deleted'); END""",
    # set_id, request_id and manifest_sha256 are NULL for a charge of releases that a rolled-back ledger had forgotten.
    """CREATE TABLE charges (
        position INTEGER PRIMARY KEY,
        account TEXT NOT NULL REFERENCES accounts (name),
        set_name TEXT NOT NULL,
        sequence INTEGER NOT NULL CHECK (sequence >= 1),
        set_id INTEGER REFERENCES sets (set_id),
        request_id TEXT,
        manifest_sha256 BLOB,
        nano_epsilon INTEGER NOT NULL CHECK (nano_epsilon >= 0),
        delta TEXT NOT NULL,
        spent_nano_epsilon INTEGER NOT NULL,
        spent_delta TEXT NOT NULL,
        reason TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        chain BLOB NOT NULL,
        UNIQUE (set_name, sequence),
        UNIQUE (set_id, request_id)
    ) STRICT""",
    "CREATE INDEX charges_by_account ON charges (account, position, nano_epsilon)",
    """CREATE TRIGGER charges_in_order BEFORE INSERT ON charges
        WHEN NEW.position <> (SELECT COALESCE(MAX(position), 0) + 1 FROM charges)
        BEGIN SELECT RAISE(ABORT, 'charges only grow at their end'); END""",
    """CREATE TRIGGER charges_add_up BEFORE INSERT ON charges
        WHEN NEW.spent_nano_epsilon <> NEW.nano_epsilon
            + (SELECT COALESCE(SUM(nano_epsilon), 0) FROM charges WHERE account = NEW.account)
        BEGIN SELECT RAISE(ABORT, 'spent is not the sum of all charges'); END""",
    f"""CREATE TRIGGER charges_within_budget BEFORE INSERT ON charges
        WHEN NOT EXISTS (
            SELECT 1 FROM (
                SELECT total_nano_epsilon, total_delta FROM budgets
                WHERE account = NEW.account ORDER BY position DESC LIMIT 1
            )
            WHERE NEW.spent_nano_epsilon <= total_nano_epsilon AND {WITHIN_TOTAL}(NEW.spent_delta, total_delta)
        )
        BEGIN SELECT RAISE(ABORT, 'the charge would pass the budget'); END""",
    """CREATE TRIGGER charges_not_changed BEFORE UPDATE ON charges
        BEGIN SELECT RAISE(ABORT, 'charges cannot be changed'); END""",
    """CREATE TRIGGER charges_not_deleted BEFORE DELETE ON charges
        BEGIN SELECT RAISE(ABORT, 'charges cannot be deleted'); END""",
    # The base release of each set that increments may follow; file: all digests that it and they hold.
    """CREATE TABLE generations (
        set_id INTEGER PRIMARY KEY REFERENCES sets (set_id),
        base INTEGER NOT NULL,
        planned INTEGER NOT NULL,
        made INTEGER NOT NULL CHECK (made BETWEEN 0 AND planned),
        file TEXT NOT NULL UNIQUE,
        sent INTEGER NOT NULL CHECK (sent >= 0),
        checksum BLOB NOT NULL CHECK (length(checksum) = 16),
        seal BLOB NOT NULL
    ) STRICT""",
    """CREATE TRIGGER charges_are_paid BEFORE INSERT ON charges
        WHEN NEW.nano_epsilon = 0 AND (NEW.delta <> '0' OR NOT EXISTS (
            SELECT 1 FROM generations WHERE set_id = NEW.set_id AND base < NEW.sequence AND made < planned
        ))
        BEGIN SELECT RAISE(ABORT, 'only an increment that its base planned is free'); END""",
    """CREATE TABLE releases (
        position INTEGER PRIMARY KEY REFERENCES charges (position),
        state TEXT NOT NULL CHECK (state IN ('pending', 'published', 'expired', 'lost')),
        manifest BLOB NOT NULL
    ) STRICT""",
    # Noisy counts that releases were made by; each has a charge of its own, before the release's.
    """CREATE TABLE counts (
        position INTEGER PRIMARY KEY REFERENCES charges (position),
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        request_id TEXT NOT NULL,
        value INTEGER NOT NULL,
        seal BLOB NOT NULL,
        UNIQUE (set_id, request_id)
    ) STRICT""",
    """CREATE TRIGGER counts_not_changed BEFORE UPDATE ON counts
        BEGIN SELECT RAISE(ABORT, 'counts cannot be changed'); END""",
    """CREATE TRIGGER counts_not_deleted BEFORE DELETE ON counts
        BEGIN SELECT RAISE(ABORT, 'counts cannot be deleted'); END""",
    "CREATE INDEX releases_by_state ON releases (state, position)",
    """CREATE TRIGGER releases_keep_their_manifest BEFORE UPDATE OF position, manifest ON releases
        BEGIN SELECT RAISE(ABORT, 'a release keeps its manifest'); END""",
    """CREATE TRIGGER releases_not_deleted BEFORE DELETE ON releases
        BEGIN SELECT RAISE(ABORT, 'releases cannot be deleted'); END""",
)

VERSION = 1

Value = int | str | bytes | None
"""What a chained or sealed column can hold."""

Row = tuple[Any, ...]
"""A row as SQLite gives it. STRICT tables guarantee the types; seals and chains are checked before a row is used."""


def make_schema(connection: sqlite3.Connection) -> None:
    """Make an empty file a ledger. The caller's transaction makes it whole or not at all."""
    for statement in STATEMENTS:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StateCorrupted unless the file has every table, index and trigger, letter for letter."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise StateCorrupted(
            f"{path}: version {version} is later than {VERSION}, the latest this server knows", file=path.name
        )
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if version < 1 or application_id != APPLICATION_ID or _schema(connection) != _expected():
        raise StateCorrupted(f"{path}: its tables are not those of a veilset ledger", file=path.name)


def _expected() -> list[tuple[str, ...]]:
    model = sqlite3.connect(":memory:", isolation_level=None)
    try:
        make_schema(model)
        return _schema(model)
    finally:
        model.close()


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def seal(*values: Value) -> bytes:
    """SHA-256 of the values, each with its type and length, so that no two different rows give the same bytes."""
    hasher = hashlib.sha256()
    for value in values:
        encoded = _encode(value)
        hasher.update(len(encoded).to_bytes(8, "big") + encoded)
    return hasher.digest()


def _encode(value: Value) -> bytes:
    match value:
        case None:
            return b"n"
        case int():
            return b"i" + str(int(value)).encode("ascii")
        case str():
            return b"s" + value.encode("utf-8")
        case bytes():
            return b"b" + value


def first_link(table: str, ledger_id: str) -> bytes:
    """What the first row of a table is chained to."""
    return seal("veilset chain", table, ledger_id)


def next_link(before: bytes, *values: Value) -> bytes:
    """The chain at a row with these values, given the chain at the row before."""
    return seal(before, *values)
