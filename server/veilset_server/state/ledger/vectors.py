"""What each set's raw vector has to be, in the ledger: the root of its checksums. Functions on an open transaction.

A set without a row is from before there were any: `opened_state` takes on what its vector is then, once. A set that was made
since has one from the start, with an empty root until its first upload is finished.
"""

from __future__ import annotations

import sqlite3

from veilset.errors import StateCorrupted
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.seals import Row, seal

SELECT_ROOTS = "SELECT set_id, root, seal FROM vector_roots"


def write_root(transaction: sqlite3.Connection, set_id: int, root: bytes) -> None:
    """Put the set's root in place."""
    row = (set_id, root, seal(set_id, root))
    transaction.execute("INSERT OR REPLACE INTO vector_roots VALUES (?, ?, ?)", row)


def read_root(transaction: sqlite3.Connection, set_id: int) -> bytes | None:
    """The set's root; None if it has no row. Raises StateCorrupted."""
    row = transaction.execute(f"{SELECT_ROOTS} WHERE set_id = ?", (set_id,)).fetchone()
    return None if row is None else root_from_row(row)


def delete_root(transaction: sqlite3.Connection, set_id: int) -> None:
    """Forget a deleted set's root."""
    transaction.execute("DELETE FROM vector_roots WHERE set_id = ?", (set_id,))


def root_from_row(row: Row) -> bytes:
    """The root in a row of `SELECT_ROOTS`. Raises StateCorrupted."""
    set_id, root, stored_seal = row
    if seal(set_id, root) != stored_seal:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of the vector of set {set_id} is damaged", file=LEDGER_NAME)
    return bytes(root)
