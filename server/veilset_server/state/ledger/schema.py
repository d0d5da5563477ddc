"""The ledger's tables, and how an older ledger becomes a present one.

Amounts of ε are integer nano-units, amounts of δ exact decimal texts (`core.privacy.budget`), times microseconds since
the Unix epoch. ``budgets`` and ``charges`` only ever grow: rows cannot be changed or deleted, and each row's ``chain`` is
the hash of the row and of the chain before it, so that `ledger_verification` finds any later change. ``seal`` is the hash
of a row that may change. What an account may spend is its newest row in ``budgets``; what it has spent is in its newest row
in ``charges``.

Law for later versions: a migration may add, it never drops, never rewrites an amount and never gives a column a new meaning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from veilset.errors import StateCorrupted

APPLICATION_ID = 0x7665_696C
"""Marks the SQLite file as a veilset ledger."""

WITHIN_TOTAL = "veilset_within_total"
"""SQL function (spent δ text, total δ text) → 0 or 1, which the connection provides: SQLite has no exact decimals. A
program without it cannot insert a charge at all."""

_VERSION_1 = (
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
        proven_size INTEGER NOT NULL CHECK (proven_size >= 0),
        deleted INTEGER NOT NULL CHECK (deleted IN (0, 1)),
        seal BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX live_set_names ON sets (name) WHERE deleted = 0",
    "CREATE INDEX set_names ON sets (name)",
    """CREATE TRIGGER sets_stay BEFORE DELETE ON sets
        BEGIN SELECT RAISE(ABORT, 'sets are marked as deleted, so that no set_id comes again'); END""",
    """CREATE TABLE uploads (
        set_id INTEGER NOT NULL REFERENCES sets (set_id),
        upload_id TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'merging', 'finished')),
        count INTEGER NOT NULL CHECK (count >= 0),
        opened_at_us INTEGER NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (set_id, upload_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX uploads_under_way ON uploads (state, set_id) WHERE state <> 'finished'",
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
        nano_epsilon INTEGER NOT NULL CHECK (nano_epsilon >= 1),
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
    """CREATE TABLE releases (
        position INTEGER PRIMARY KEY REFERENCES charges (position),
        state TEXT NOT NULL CHECK (state IN ('pending', 'published', 'expired', 'lost')),
        manifest BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX releases_by_state ON releases (state, position)",
    """CREATE TRIGGER releases_keep_their_manifest BEFORE UPDATE OF position, manifest ON releases
        BEGIN SELECT RAISE(ABORT, 'a release keeps its manifest'); END""",
    """CREATE TRIGGER releases_not_deleted BEFORE DELETE ON releases
        BEGIN SELECT RAISE(ABORT, 'releases cannot be deleted'); END""",
)

_VERSION_2 = (
    # Of every set made since, and of an older one as soon as it is known (`ledger.vectors`).
    """CREATE TABLE vector_roots (
        set_id INTEGER PRIMARY KEY REFERENCES sets (set_id),
        root BLOB NOT NULL CHECK (length(root) IN (0, 32)),
        seal BLOB NOT NULL
    ) STRICT""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2)
"""Statements that lead from version i to i + 1; the first make an empty file a ledger."""


def schema_version(connection: sqlite3.Connection) -> int:
    """Version of the open ledger; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the ledger to the latest version. The caller's transaction makes it whole or not at all."""
    for version in range(schema_version(connection), len(migrations)):
        for statement in migrations[version]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version + 1}")


def check_schema(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Raises StateCorrupted unless the file has every table, index and trigger of its version, letter for letter."""
    version = schema_version(connection)
    if version > len(migrations):
        raise StateCorrupted(
            f"{path}: version {version} is later than {len(migrations)}, the latest this server knows", file=path.name
        )
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if version < 1 or application_id != APPLICATION_ID or _schema(connection) != _expected(migrations[:version]):
        raise StateCorrupted(f"{path}: its tables are not those of a veilset ledger", file=path.name)


def _expected(migrations: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    model = sqlite3.connect(":memory:", isolation_level=None)
    try:
        upgrade(model, migrations)
        return _schema(model)
    finally:
        model.close()


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
