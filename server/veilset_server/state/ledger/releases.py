"""Releases in the ledger: their charge, their manifest, and the state they are in. Functions on an open transaction."""

from __future__ import annotations

import hashlib
import sqlite3

from veilset.core.params import check_integer, check_name
from veilset.errors import AlreadyExists, FailedPrecondition, NotFound, StateCorrupted, must_be
from veilset_server.records import Account, Charge, ReleaseState, StoredRelease
from veilset_server.state.ledger.budgets import ChargeEntry, append_charge, check_fits, read_account
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.schema import Row, seal
from veilset_server.state.ledger.sets import read_set_by_id

MAX_SEQUENCE = 1 << 62
_NEXT_STATES: dict[ReleaseState, frozenset[ReleaseState]] = {
    ReleaseState.PENDING: frozenset({ReleaseState.PUBLISHED, ReleaseState.EXPIRED, ReleaseState.LOST}),
    ReleaseState.PUBLISHED: frozenset({ReleaseState.EXPIRED}),
    ReleaseState.EXPIRED: frozenset(),
    ReleaseState.LOST: frozenset(),
}
_SELECT = (
    "SELECT charges.set_id, charges.set_name, charges.sequence, charges.request_id, releases.state, releases.manifest "
    "FROM releases JOIN charges USING (position)"
)


def next_sequence(transaction: sqlite3.Connection, set_name: str) -> int:
    """One above the highest sequence ever charged under this name, by any set that bore it."""
    query = "SELECT COALESCE(MAX(sequence), 0) + 1 FROM charges WHERE set_name = ?"
    return int(transaction.execute(query, (set_name,)).fetchone()[0])


def highest_sequences(transaction: sqlite3.Connection) -> dict[str, int]:
    """The highest sequence that was ever charged under each name."""
    return dict(transaction.execute("SELECT set_name, MAX(sequence) FROM charges GROUP BY set_name"))


def charge_release(
    transaction: sqlite3.Connection,
    release: StoredRelease,
    account_name: str,
    charge: Charge,
    expected_spent: int,
    at_us: int,
) -> None:
    """Check everything, then insert charge and release. Errors as in `SqliteLedger.charge_release`."""
    stored = read_set_by_id(transaction, release.set_id)
    description = stored.description
    if release.state is not ReleaseState.PENDING:
        raise must_be("state", "pending for a new release", release.state)
    if (description.name, description.account) != (release.set_name, account_name):
        raise must_be("account", "the name and account of the release's own set")
    if find_release(transaction, release.set_name, release.request_id) is not None:
        raise AlreadyExists("release: this request id made one already", field="request_id")
    expected_sequence = next_sequence(transaction, release.set_name)
    if release.sequence < expected_sequence:
        raise AlreadyExists(f"release: sequence {release.sequence} is taken", field="sequence")
    if release.sequence > expected_sequence:
        raise FailedPrecondition(f"release: the next sequence is {expected_sequence}", field="sequence")
    account = read_account(transaction, account_name)
    check_fits(account, charge)  # first: where nothing is left, another header would not help
    if account.spent_nano_epsilon != expected_spent:
        raise FailedPrecondition("account: another charge came between; make the header anew", field="account")
    entry = ChargeEntry(
        set_name=release.set_name,
        sequence=release.sequence,
        set_id=release.set_id,
        request_id=release.request_id,
        manifest_sha256=hashlib.sha256(release.manifest).digest(),
        reason="release",
        at_us=at_us,
    )
    position = append_charge(transaction, account, charge, entry)
    values = (position, str(release.state), release.manifest)
    transaction.execute("INSERT INTO releases (position, state, manifest) VALUES (?, ?, ?)", values)


SELECT_COUNTS = "SELECT position, set_id, request_id, value, seal FROM counts"


def charge_count(
    transaction: sqlite3.Connection, set_id: int, request_id: str, charge: Charge, value: int, at_us: int
) -> int:
    """Charge a noisy count and keep it, under a sequence of its own, which is returned. Errors as `SqliteLedger.charge_count`."""
    description = read_set_by_id(transaction, set_id).description
    if find_count(transaction, set_id, request_id) is not None:
        raise AlreadyExists("count: this request id bought one already", field="request_id")
    sequence = next_sequence(transaction, description.name)
    account = read_account(transaction, description.account)
    entry = ChargeEntry(description.name, sequence, None, None, None, "count", at_us)
    row = (append_charge(transaction, account, charge, entry), set_id, request_id, value)
    transaction.execute("INSERT INTO counts VALUES (?, ?, ?, ?, ?)", (*row, seal(*row)))
    return sequence


def find_count(transaction: sqlite3.Connection, set_id: int, request_id: str) -> int | None:
    """The count that a request bought, if any. Raises StateCorrupted."""
    query = f"{SELECT_COUNTS} WHERE set_id = ? AND request_id = ?"
    row = transaction.execute(query, (set_id, request_id)).fetchone()
    return None if row is None else count_from_row(row)


def count_from_row(row: Row) -> int:
    """The value in a row of `SELECT_COUNTS`. Raises StateCorrupted."""
    if seal(*row[:-1]) != row[-1]:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of count {row[0]} is damaged", file=LEDGER_NAME)
    return int(row[3])


def charge_lost(
    transaction: sqlite3.Connection,
    set_name: str,
    last_sequence: int,
    account_name: str,
    charge: Charge,
    reason: str,
    at_us: int,
) -> Account:
    """Charge what a rolled-back ledger forgot. Errors as in `SqliteLedger.charge_lost_releases`."""
    check_name("set_name", set_name)
    check_integer("last_sequence", last_sequence, 1, MAX_SEQUENCE)
    if last_sequence < next_sequence(transaction, set_name):
        raise AlreadyExists(f"release: sequence {last_sequence} is charged already", field="last_sequence")
    account = read_account(transaction, account_name)
    entry = ChargeEntry(set_name, last_sequence, None, None, None, reason, at_us)
    append_charge(transaction, account, charge, entry)
    return read_account(transaction, account_name)


def mark_release(transaction: sqlite3.Connection, set_id: int, sequence: int, state: ReleaseState) -> None:
    """Move a release along; no change if it is there already. Raises NotFound, FailedPrecondition."""
    row = transaction.execute(
        "SELECT releases.position, releases.state FROM releases JOIN charges USING (position) "
        "WHERE charges.set_id = ? AND charges.sequence = ?",
        (set_id, sequence),
    ).fetchone()
    if row is None:
        raise NotFound("release: no release of that sequence", field="sequence")
    position, before = row[0], ReleaseState(row[1])
    if state is not before and state not in _NEXT_STATES[before]:
        raise FailedPrecondition(f"release: is {before}, cannot become {state}", field="state")
    transaction.execute("UPDATE releases SET state = ? WHERE position = ?", (str(state), position))


def retire_releases(transaction: sqlite3.Connection, set_id: int) -> None:
    """What becomes of a deleted set's releases: pending → lost, published → expired. So nothing brings them back."""
    for before, after in ((ReleaseState.PENDING, ReleaseState.LOST), (ReleaseState.PUBLISHED, ReleaseState.EXPIRED)):
        transaction.execute(
            "UPDATE releases SET state = ? WHERE state = ? "
            "AND position IN (SELECT position FROM charges WHERE set_id = ?)",
            (str(after), str(before), set_id),
        )


def get_release(transaction: sqlite3.Connection, set_name: str, sequence: int) -> StoredRelease:
    """The release of that sequence, or the newest for 0. Raises NotFound."""
    query = f"{_SELECT} WHERE charges.set_name = ? AND (? = 0 OR charges.sequence = ?) ORDER BY charges.sequence DESC LIMIT 1"
    row = transaction.execute(query, (set_name, sequence, sequence)).fetchone()
    if row is None:
        raise NotFound("release: no release of that set and sequence", field="sequence")
    return _from_row(row)


def find_release(transaction: sqlite3.Connection, set_name: str, request_id: str) -> StoredRelease | None:
    """The release that this request id made of the set that now bears the name."""
    query = (
        f"{_SELECT} JOIN sets ON sets.set_id = charges.set_id "
        "WHERE sets.name = ? AND sets.deleted = 0 AND charges.request_id = ?"
    )
    row = transaction.execute(query, (set_name, request_id)).fetchone()
    return None if row is None else _from_row(row)


def list_releases(transaction: sqlite3.Connection, set_name: str, below: int, limit: int) -> list[StoredRelease]:
    """Newest first, with sequences below ``below`` (0: from the newest)."""
    query = f"{_SELECT} WHERE charges.set_name = ? AND (? = 0 OR charges.sequence < ?) ORDER BY charges.sequence DESC LIMIT ?"
    return [_from_row(row) for row in transaction.execute(query, (set_name, below, below, limit))]


def list_parts(transaction: sqlite3.Connection, set_id: int, base: int) -> list[StoredRelease]:
    """The set's releases from ``base`` on, oldest first."""
    query = f"{_SELECT} WHERE charges.set_id = ? AND charges.sequence >= ? ORDER BY charges.sequence"
    return [_from_row(row) for row in transaction.execute(query, (set_id, base))]


def releases_in_state(transaction: sqlite3.Connection, state: ReleaseState) -> list[StoredRelease]:
    """All releases in a state, oldest first."""
    query = f"{_SELECT} WHERE releases.state = ? ORDER BY releases.position"
    return [_from_row(row) for row in transaction.execute(query, (str(state),))]


def sequences_in_state(transaction: sqlite3.Connection, set_name: str, state: ReleaseState) -> list[int]:
    """Of all releases under this name, newest first; no manifest is read."""
    query = (
        "SELECT charges.sequence FROM releases JOIN charges USING (position) "
        "WHERE charges.set_name = ? AND releases.state = ? ORDER BY charges.sequence DESC"
    )
    return [int(sequence) for (sequence,) in transaction.execute(query, (set_name, str(state)))]


def _from_row(row: Row) -> StoredRelease:
    set_id, set_name, sequence, request_id, state, manifest = row
    return StoredRelease(set_id, set_name, sequence, request_id, ReleaseState(state), manifest)
