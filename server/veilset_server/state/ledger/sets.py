"""Sets in the ledger. Functions on an open transaction.

A description is kept as JSON, so that an optional parameter can be added without touching what is stored. A deleted set
leaves its row, marked: so no set_id comes again, and charges keep what they point to.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict

from veilset.core.encodings import parameters_of
from veilset.core.params import (
    Adjacency,
    Calibration,
    HashParameters,
    HashScheme,
    Normalization,
    PrivacyParameters,
    check_name,
)
from veilset.errors import AlreadyExists, FailedPrecondition, LimitExceeded, NotFound, StateCorrupted
from veilset_server.records import SetDescription, StoredSet
from veilset_server.settings import exceeded
from veilset_server.state.ledger.file import LEDGER_NAME, damage
from veilset_server.state.ledger.schema import OWNER, Row, Value, seal

SELECT_SETS = "SELECT set_id, name, account, description, deleted, seal FROM sets"


def insert_set(
    transaction: sqlite3.Connection, description: SetDescription, max_sets: int, max_sets_of_owner: int | None = None
) -> StoredSet:
    """A new set under a new id; its account has to exist, and its name to be free. Raises LimitExceeded."""
    (live,) = transaction.execute("SELECT COUNT(*) FROM sets WHERE deleted = 0").fetchone()
    if live >= max_sets:
        raise LimitExceeded(f"sets: this service holds at most {max_sets}", limit=max_sets)
    if max_sets_of_owner is not None and _owned_sets(transaction, description.owner) >= max_sets_of_owner:
        raise exceeded("sets: you have as many as one principal may", "max_sets_per_principal", max_sets_of_owner)
    stored = StoredSet(highest_set_id(transaction) + 1, description)
    row = _to_row(stored, deleted=False)
    transaction.execute("INSERT INTO sets VALUES (?, ?, ?, ?, ?, ?)", (*row, seal(*row)))
    return stored


def check_name_is_free(transaction: sqlite3.Connection, name: str, account: str) -> None:
    """A name keeps its account after its set was deleted, as what readers still hold of that set was charged there.

    Raises InvalidInput, AlreadyExists, and FailedPrecondition if sets of that name were charged to another account.
    """
    check_name("name", name)
    query = "SELECT account, deleted FROM sets WHERE name = ? ORDER BY deleted LIMIT 1"
    bound, deleted = transaction.execute(query, (name,)).fetchone() or (account, 1)
    if not deleted:
        raise AlreadyExists(f"set {name}: exists already", field="name")
    if bound != account:
        raise FailedPrecondition(
            f"account: the name {name} belongs to the budget account {bound} for good, where its earlier releases were charged. "
            f"Create the set with --account {bound}, and raise that budget if need be: veilset budget --account {bound} "
            "--raise-epsilon … --reason …; or take a name that was never used",
            field="account",
            account=bound,
        )


def _owned_sets(transaction: sqlite3.Connection, owner: str) -> int:
    query = f"SELECT COUNT(*) FROM sets WHERE deleted = 0 AND {OWNER} = ?"
    return int(transaction.execute(query, (owner,)).fetchone()[0])


def read_set(transaction: sqlite3.Connection, name: str) -> StoredSet:
    """The live set of that name. Raises NotFound."""
    row = transaction.execute(f"{SELECT_SETS} WHERE name = ? AND deleted = 0", (name,)).fetchone()
    if row is None:
        raise NotFound("set: no set of that name", field="name")
    return set_from_row(row)


def read_set_by_id(transaction: sqlite3.Connection, set_id: int) -> StoredSet:
    """The live set of that id. Raises NotFound."""
    row = transaction.execute(f"{SELECT_SETS} WHERE set_id = ? AND deleted = 0", (set_id,)).fetchone()
    if row is None:
        raise NotFound("set: it was deleted, or never made", field="name")
    return set_from_row(row)


def read_sets(transaction: sqlite3.Connection, after: str, limit: int) -> list[StoredSet]:
    """Live sets with names above ``after``, by name."""
    query = f"{SELECT_SETS} WHERE name > ? AND deleted = 0 ORDER BY name LIMIT ?"
    return [set_from_row(row) for row in transaction.execute(query, (after, limit))]


def highest_set_id(transaction: sqlite3.Connection) -> int:
    """Highest id ever given, also to a set that is deleted; 0 for none."""
    return int(transaction.execute("SELECT COALESCE(MAX(set_id), 0) FROM sets").fetchone()[0])


def mark_deleted(transaction: sqlite3.Connection, stored: StoredSet) -> None:
    """Forget the set but for its row."""
    row = _to_row(stored, deleted=True)
    transaction.execute("UPDATE sets SET deleted = 1, seal = ? WHERE set_id = ?", (seal(*row), stored.set_id))


def _to_row(stored: StoredSet, *, deleted: bool) -> tuple[Value, ...]:
    description = stored.description
    encoding = {"encoding": {"family": description.encoding.encoding, **description.encoding.fields()}}
    text = json.dumps(asdict(description) | encoding, sort_keys=True)
    return stored.set_id, description.name, description.account, text, int(deleted)


def set_from_row(row: Row) -> StoredSet:
    """The set in a row of `SELECT_SETS`. Raises StateCorrupted."""
    set_id, _, _, text, _, stored_seal = row
    if seal(*row[:-1]) != stored_seal:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of set {set_id} is damaged", file=LEDGER_NAME)
    with damage(LEDGER_NAME):
        return StoredSet(set_id, _description_from_json(text))


def _description_from_json(text: str) -> SetDescription:
    fields = json.loads(text)
    hashing, encoding, privacy = (fields.pop(name) for name in ("hashing", "encoding", "privacy"))
    hashing["scheme"] = HashScheme(hashing["scheme"])
    privacy["adjacency"] = Adjacency(privacy["adjacency"])
    privacy["calibration"] = Calibration(privacy["calibration"])
    fields["normalization"] = Normalization(fields["normalization"])
    return SetDescription(
        hashing=HashParameters(**hashing),
        encoding=parameters_of(encoding.pop("family"), encoding),
        privacy=PrivacyParameters(**privacy),
        **fields,
    )
