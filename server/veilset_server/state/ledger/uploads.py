"""Uploads under way, and the ids of finished ones. Functions on an open transaction.

An upload is one stream (part 0), or parts 1 to `MAX_PART` that are sealed one by one and committed together through part 0.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import xxhash

from veilset.core.params import Operation
from veilset.errors import AlreadyExists, FailedPrecondition, NotFound, StateCorrupted, UploadMismatch
from veilset_server.records import RunFile, Upload, UploadPart, UploadQuota, UploadState
from veilset_server.settings import exceeded
from veilset_server.state.ledger import contents
from veilset_server.state.ledger.file import LEDGER_NAME, damage
from veilset_server.state.ledger.schema import Row, seal

SELECT_UPLOADS = (
    "SELECT set_id, upload_id, part, serial, operation, state, count, checksum, opened_at_us, seal FROM uploads"
)
SELECT_FINISHED = "SELECT set_id, upload_id, operation, count, checksum, at_us, seal FROM finished_uploads"


def open_upload(
    transaction: sqlite3.Connection,
    set_id: int,
    upload_id: str,
    part: int,
    operation: Operation,
    at_us: int,
    quota: UploadQuota | None = None,
) -> Upload:
    """The upload of that id, or its part, made if new. Raises NotFound, FailedPrecondition (of another operation),
    LimitExceeded if a new one would pass the quota."""
    finished = find_finished(transaction, set_id, upload_id, operation)
    if finished is not None:
        return Upload(set_id, upload_id, part, 0, operation, UploadState.FINISHED, *finished)
    parts = _parts(transaction, set_id, upload_id)
    for upload in parts:
        _check_operation(upload.operation, operation)
        if upload.part == part:
            return upload
    if not parts and quota is not None:
        _check_quota(transaction, quota)
    serial = contents.next_serial(transaction, set_id)
    row = (set_id, upload_id, part, serial, str(operation), str(UploadState.OPEN), 0, b"", at_us)
    transaction.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal(*row)))
    return Upload(set_id, upload_id, part, serial, operation, UploadState.OPEN, 0)


def _check_operation(known: Operation, asked: Operation) -> None:
    if known is not asked:
        raise FailedPrecondition(
            f"operation: this upload id was opened with {known}, not {asked}; open it so, or take another id",
            field="operation",
        )


def _check_quota(transaction: sqlite3.Connection, quota: UploadQuota) -> None:
    if _open_with_prefix(transaction, quota.prefix) >= quota.own:
        raise exceeded("uploads: too many of yours are open", "max_open_uploads_per_principal", quota.own)
    if _open_with_prefix(transaction, "") >= quota.everybody:
        raise exceeded("uploads: too many are open in all", "max_open_uploads", quota.everybody)


def _open_with_prefix(transaction: sqlite3.Connection, prefix: str) -> int:
    query = "SELECT COUNT(*) FROM (SELECT DISTINCT set_id, upload_id FROM uploads WHERE substr(upload_id, 1, ?) = ?)"
    return int(transaction.execute(query, (len(prefix), prefix)).fetchone()[0])


def seal_part(transaction: sqlite3.Connection, upload: Upload, count: int, checksum: bytes) -> None:
    """A part is complete and on disk; it becomes content when its upload is finished. Raises NotFound."""
    row = transaction.execute(
        f"{SELECT_UPLOADS} WHERE set_id = ? AND upload_id = ? AND part = ?",
        (upload.set_id, upload.upload_id, upload.part),
    ).fetchone()
    if row is None or upload_from_row(row) != upload:
        raise _dropped()
    row = (*row[:5], str(UploadState.SEALED), count, checksum, row[8])
    transaction.execute(
        "UPDATE uploads SET state = ?, count = ?, checksum = ?, seal = ? WHERE set_id = ? AND upload_id = ? AND part = ?",
        (str(UploadState.SEALED), count, checksum, seal(*row), *row[:3]),
    )


def finish_upload(
    transaction: sqlite3.Connection,
    upload: Upload,
    count: int,
    checksum: bytes,
    parts: Sequence[UploadPart],
    at_us: int,
) -> int | None:
    """Make the upload part of its set: its own spool, or the spools of these sealed parts.

    Returns the set's operations if this was one that the anchor has to know. Raises NotFound (it was dropped), UploadMismatch
    naming ``parts`` (they are not the sealed ones).
    """
    known = {found.part: found for found in _parts(transaction, upload.set_id, upload.upload_id)}
    own = known.get(upload.part)
    if own != upload:
        raise _dropped()
    if parts:
        files = _listed(known, parts)
    else:
        if any(part for part in known):
            raise UploadMismatch("parts: this upload has parts, and finish lists none", field="parts")
        files = [RunFile(spool_name(upload), count, checksum)]
    operations = contents.add_run(transaction, upload.set_id, upload.operation, files, at_us)
    used = {file.name for file in files}
    for found in known.values():
        if spool_name(found) not in used:
            contents.add_leftover(transaction, spool_name(found))
    _delete(transaction, upload.set_id, upload.upload_id)
    remember_finished(transaction, upload, count, parts_checksum(parts) if parts else checksum, at_us)
    return operations


def _listed(known: dict[int, Upload], parts: Sequence[UploadPart]) -> list[RunFile]:
    files = []
    for listed in parts:
        found = known.get(listed.part)
        if found is None or found.state is not UploadState.SEALED:
            raise UploadMismatch(f"parts: part {listed.part} is not sealed; finish its stream first", field="parts")
        if (found.count, found.checksum) != (listed.count, listed.checksum):
            raise UploadMismatch(
                f"parts: part {listed.part} holds other elements than the list says; send it again under a new upload id",
                field="parts",
            )
        files.append(RunFile(spool_name(found), found.count, found.checksum))
    missing = {part for part, found in known.items() if found.state is UploadState.SEALED}
    missing -= {listed.part for listed in parts}
    if missing:
        raise UploadMismatch(f"parts: part {min(missing)} is sealed, and finish does not list it", field="parts")
    return files


def parts_checksum(parts: Sequence[UploadPart]) -> bytes:
    """XXH3-128 of a list of parts, in any order."""
    listed = sorted((part.part, part.count, part.checksum) for part in parts)
    return xxhash.xxh3_128_digest(b"".join(b"%d:%d:%b" % row for row in listed))


def check_repeated(known: tuple[int, bytes], count: int, checksum: bytes) -> None:
    """Raises AlreadyExists unless a finished upload of this count and checksum can be the one that is finished again. Without a
    checksum on one side the count decides."""
    if count != known[0] or (checksum and known[1] and checksum != known[1]):
        raise AlreadyExists(
            "upload_id: an upload of that id was finished with other elements; nothing was done, give these an id of their own",
            field="upload_id",
        )


def _dropped() -> NotFound:
    return NotFound("upload: no upload of that id; it was dropped, or never opened", field="upload_id")


def spool_name(upload: Upload) -> str:
    """The file of an upload's elements, below the state folder."""
    return f"spools/{upload.set_id}-{upload.serial}.spool"


def find_finished(
    transaction: sqlite3.Connection, set_id: int, upload_id: str, operation: Operation
) -> tuple[int, bytes] | None:
    """Number of elements and checksum (of the list of parts if it came in parts) of the finished upload of that id, or None.

    Raises FailedPrecondition (of another operation).
    """
    row = transaction.execute(f"{SELECT_FINISHED} WHERE set_id = ? AND upload_id = ?", (set_id, upload_id)).fetchone()
    if row is None:
        return None
    _check_seal(row)
    with damage(LEDGER_NAME):
        _check_operation(Operation(row[2]), operation)
    return int(row[3]), bytes(row[4])


def remember_finished(transaction: sqlite3.Connection, upload: Upload, count: int, checksum: bytes, at_us: int) -> None:
    """So that a repeated finish is answered and not done again."""
    row = (upload.set_id, upload.upload_id, str(upload.operation), count, checksum, at_us)
    transaction.execute("INSERT INTO finished_uploads VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, seal(*row)))


def forget_checksums(transaction: sqlite3.Connection, set_id: int, after: str) -> str | None:
    """Forget what the set's finished uploads held: the checksum of a short one confirms a guess of its elements.

    At most 1000 uploads, of ids above ``after``; returns the last one's id, None after the last of all.
    """
    rows = transaction.execute(
        f"{SELECT_FINISHED} WHERE set_id = ? AND upload_id > ? AND checksum <> x'' ORDER BY upload_id LIMIT 1000",
        (set_id, after),
    ).fetchall()
    for row in rows:
        _check_seal(row)
        kept = (*row[:4], b"", row[5])
        transaction.execute(
            "UPDATE finished_uploads SET checksum = x'', seal = ? WHERE set_id = ? AND upload_id = ?",
            (seal(*kept), set_id, row[1]),
        )
    return rows[-1][1] if rows else None


def forget_finished(transaction: sqlite3.Connection, before_us: int) -> int:
    """Forget the ids of uploads that were finished before that time; returns how many."""
    return transaction.execute("DELETE FROM finished_uploads WHERE at_us < ?", (before_us,)).rowcount


def check_not_open(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> None:
    """Raises FailedPrecondition if a stream of that id is under way."""
    if _parts(transaction, set_id, upload_id):
        raise FailedPrecondition(
            "upload_id: an upload of that id is open as a stream; finish it, or take another id", field="upload_id"
        )


def open_uploads(transaction: sqlite3.Connection) -> list[Upload]:
    """Uploads and parts under way, sealed ones too, of all sets."""
    return [upload_from_row(row) for row in transaction.execute(f"{SELECT_UPLOADS} ORDER BY set_id, serial")]


def delete_open_upload(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> bool:
    """Forget an upload unless it was finished by now; whether it was forgotten."""
    return bool(_delete(transaction, set_id, upload_id))


def delete_uploads(transaction: sqlite3.Connection, set_id: int) -> None:
    """Forget all uploads of a set that is deleted."""
    for upload in open_uploads(transaction):
        if upload.set_id == set_id:
            contents.add_leftover(transaction, spool_name(upload))
    transaction.execute("DELETE FROM uploads WHERE set_id = ?", (set_id,))
    transaction.execute("DELETE FROM finished_uploads WHERE set_id = ?", (set_id,))


def _delete(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> int:
    query = "DELETE FROM uploads WHERE set_id = ? AND upload_id = ?"
    return transaction.execute(query, (set_id, upload_id)).rowcount


def _parts(transaction: sqlite3.Connection, set_id: int, upload_id: str) -> list[Upload]:
    query = f"{SELECT_UPLOADS} WHERE set_id = ? AND upload_id = ? ORDER BY part"
    return [upload_from_row(row) for row in transaction.execute(query, (set_id, upload_id))]


def upload_from_row(row: Row) -> Upload:
    """The upload in a row of `SELECT_UPLOADS`. Raises StateCorrupted."""
    _check_seal(row)
    set_id, upload_id, part, serial, operation, state, count, checksum, _, _ = row
    with damage(LEDGER_NAME):
        return Upload(set_id, upload_id, part, serial, Operation(operation), UploadState(state), count, bytes(checksum))


def _check_seal(row: Row) -> None:
    if seal(*row[:-1]) != row[-1]:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of an upload of set {row[0]} is damaged", file=LEDGER_NAME)
