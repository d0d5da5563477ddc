"""Uploads in the ledger: open → merging → finished. Functions on an open transaction."""

from __future__ import annotations

import sqlite3

from veilset.core.params import check_integer
from veilset.errors import FailedPrecondition, NotFound, StateCorrupted
from veilset_server.limits import exceeded
from veilset_server.records import Upload, UploadQuota, UploadState
from veilset_server.state.ledger.file import LEDGER_NAME, damage
from veilset_server.state.ledger.seals import Row, seal

SELECT_UPLOADS = "SELECT set_id, upload_id, state, count, opened_at_us, seal FROM uploads"
MAX_COUNT = 1 << 62


def read_or_open_upload(
    transaction: sqlite3.Connection, set_id: int, upload_id: str, at_us: int, quota: UploadQuota | None = None
) -> Upload:
    """The upload of that id, made if new. Raises LimitExceeded if a new one would pass the quota."""
    row = _row(transaction, set_id, upload_id)
    if row is None:
        if quota is not None:
            _check_quota(transaction, quota)
        row = (set_id, upload_id, str(UploadState.OPEN), 0, at_us)
        row = (*row, seal(*row))
        transaction.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?)", row)
    return upload_from_row(row)


def _check_quota(transaction: sqlite3.Connection, quota: UploadQuota) -> None:
    if sum(_open_with_prefix(transaction, prefix) for prefix in quota.prefixes) >= quota.own:
        raise exceeded("uploads: too many of yours are open", "max_open_uploads_per_principal", quota.own)
    if _open_with_prefix(transaction, "") >= quota.everybody:
        raise exceeded("uploads: too many are open in all", "max_open_uploads", quota.everybody)


def _open_with_prefix(transaction: sqlite3.Connection, prefix: str) -> int:
    query = "SELECT COUNT(*) FROM uploads WHERE state = 'open' AND substr(upload_id, 1, ?) = ?"
    return int(transaction.execute(query, (len(prefix), prefix)).fetchone()[0])


def advance_upload(
    transaction: sqlite3.Connection,
    set_id: int,
    upload_id: str,
    before: UploadState,
    after: UploadState,
    count: int | None = None,
) -> Upload:
    """From one state to the next; count None keeps it. Raises NotFound, FailedPrecondition (not in that state)."""
    row = _row(transaction, set_id, upload_id)
    if row is None:
        raise NotFound("upload: no upload of that id; it was dropped, or never opened", field="upload_id")
    upload = upload_from_row(row)
    if upload.state is not before:
        raise FailedPrecondition(f"upload: is {upload.state}, has to be {before}", field="upload_id")
    new_count = upload.count if count is None else check_integer("count", count, 0, MAX_COUNT)
    changed = (set_id, upload_id, str(after), new_count, row[4])
    transaction.execute(
        "UPDATE uploads SET state = ?, count = ?, seal = ? WHERE set_id = ? AND upload_id = ?",
        (str(after), new_count, seal(*changed), set_id, upload_id),
    )
    return Upload(set_id, upload_id, after, new_count)


def count_uploads(transaction: sqlite3.Connection, set_id: int, state: UploadState) -> int:
    """Uploads of a set that are in ``state``."""
    query = "SELECT COUNT(*) FROM uploads WHERE set_id = ? AND state = ?"
    return int(transaction.execute(query, (set_id, str(state))).fetchone()[0])


def uploads_in_state(transaction: sqlite3.Connection, state: UploadState, set_id: int | None = None) -> list[Upload]:
    """Uploads under way in ``state``, of one set or of all, by set and age."""
    of_set, values = ("", (str(state),)) if set_id is None else (" AND set_id = ?", (str(state), set_id))
    # Finished ones may be many; the second term is what allows the index of those under way.
    query = f"{SELECT_UPLOADS} INDEXED BY uploads_under_way WHERE state = ? AND state <> 'finished'{of_set} "
    query += "ORDER BY set_id, opened_at_us"
    return [upload_from_row(row) for row in transaction.execute(query, values)]


def delete_open_upload(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> bool:
    """Forget an upload unless it was accepted by now; whether it was forgotten."""
    query = "DELETE FROM uploads WHERE set_id = ? AND upload_id = ? AND state = 'open'"
    return transaction.execute(query, (set_id, upload_id)).rowcount == 1


def delete_uploads(transaction: sqlite3.Connection, set_id: int) -> None:
    """Forget all uploads of a set."""
    transaction.execute("DELETE FROM uploads WHERE set_id = ?", (set_id,))


def _row(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> Row | None:
    query = f"{SELECT_UPLOADS} WHERE set_id = ? AND upload_id = ?"
    row: Row | None = transaction.execute(query, (set_id, upload_id)).fetchone()
    return row


def upload_from_row(row: Row) -> Upload:
    """The upload in a row of `SELECT_UPLOADS`. Raises StateCorrupted."""
    set_id, upload_id, state, count, _, stored_seal = row
    if seal(*row[:-1]) != stored_seal:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of an upload of set {set_id} is damaged", file=LEDGER_NAME)
    with damage(LEDGER_NAME):
        return Upload(set_id, upload_id, UploadState(state), count)
