"""What sets hold, in the ledger: runs in order of finish, small uploads, files that are to go. Functions on a transaction.

A set's ``serial`` numbers its spools and what is finished, in one sequence. ``operations`` counts its finished removals and
replacements; the anchor remembers it, so it continues where a deleted set of the same name stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

import numpy as np

from veilset.core.params import Operation
from veilset.errors import NotFound, StateCorrupted
from veilset_server.records import Generation, RunFile, SmallUpload, StoredRun
from veilset_server.state.ledger.file import LEDGER_NAME, damage
from veilset_server.state.ledger.schema import Row, seal

SELECT_CONTENTS = "SELECT set_id, serial, operations, seal FROM contents"
SELECT_RUNS = "SELECT set_id, number, file, operation, sent, checksum, removes, day, seal FROM runs"
SELECT_GENERATIONS = "SELECT set_id, base, planned, made, file, sent, checksum, seal FROM generations"
SELECT_SMALL = "SELECT set_id, number, operation, digests, day, seal FROM small_uploads"
FOLDED = "folded"
DAY_US = 86_400 * 10**6


def make_contents(transaction: sqlite3.Connection, set_id: int, name: str) -> None:
    """Those of a new, empty set."""
    _write_contents(transaction, set_id, 0, operations_of(transaction, name))


def operations_of(transaction: sqlite3.Connection, name: str) -> int:
    """How many removals and replacements were ever finished under this name, by any set that bore it."""
    query = "SELECT COALESCE(MAX(operations), 0) FROM contents JOIN sets USING (set_id) WHERE name = ?"
    return int(transaction.execute(query, (name,)).fetchone()[0])


def highest_operations(transaction: sqlite3.Connection) -> dict[str, int]:
    """The same for every name under which there was any."""
    query = (
        "SELECT name, MAX(operations) FROM contents JOIN sets USING (set_id) GROUP BY name HAVING MAX(operations) > 0"
    )
    return dict(transaction.execute(query))


def raise_operations(transaction: sqlite3.Connection, set_id: int, operations: int) -> None:
    """Let the set's operations be at least so many."""
    serial, before = _contents(transaction, set_id)
    _write_contents(transaction, set_id, serial, max(before, operations))


def next_serial(transaction: sqlite3.Connection, set_id: int) -> int:
    """A number that the set never used before. Raises NotFound, StateCorrupted."""
    serial, operations = _contents(transaction, set_id)
    _write_contents(transaction, set_id, serial + 1, operations)
    return serial + 1


def add_run(
    transaction: sqlite3.Connection, set_id: int, operation: Operation, files: Sequence[RunFile], now_us: int
) -> int | None:
    """A finished upload of these spools; returns the set's operations if this was one that the anchor has to know."""
    number, operations = _begin(transaction, set_id, operation)
    removes = operation is Operation.REMOVE
    day = _day(transaction, set_id, now_us)
    _insert_run(transaction, set_id, StoredRun(number, _kept(operation), tuple(files), removes, day))
    return operations


def add_small(
    transaction: sqlite3.Connection, set_id: int, operation: Operation, digests: bytes, now_us: int
) -> int | None:
    """The same for an upload that is small enough to stay in the ledger until it is folded."""
    number, operations = _begin(transaction, set_id, operation)
    row = (set_id, number, str(_kept(operation)), digests, _day(transaction, set_id, now_us))
    transaction.execute("INSERT INTO small_uploads VALUES (?, ?, ?, ?, ?, ?)", (*row, seal(*row)))
    return operations


def _day(transaction: sqlite3.Connection, set_id: int, now_us: int) -> int:
    """The UTC day, or that of the newest item where the clock went back: days follow the order of finish."""
    query = (
        "SELECT MAX(day) FROM (SELECT MAX(day) AS day FROM runs WHERE set_id = ? "
        "UNION ALL SELECT MAX(day) FROM small_uploads WHERE set_id = ?)"
    )
    (newest,) = transaction.execute(query, (set_id, set_id)).fetchone()
    return max(now_us // DAY_US, newest or 0)


def drop_before(transaction: sqlite3.Connection, set_id: int, day: int) -> None:
    """Remove what was finished before a day."""
    transaction.execute(
        "INSERT OR IGNORE INTO leftovers SELECT file FROM runs WHERE set_id = ? AND day < ?", (set_id, day)
    )
    for table in ("runs", "small_uploads"):
        transaction.execute(f"DELETE FROM {table} WHERE set_id = ? AND day < ?", (set_id, day))


def _begin(transaction: sqlite3.Connection, set_id: int, operation: Operation) -> tuple[int, int | None]:
    serial, operations = _contents(transaction, set_id)
    counted = operation is not Operation.ADD
    _write_contents(transaction, set_id, serial + 1, operations + counted)
    if operation is Operation.REPLACE:
        clear(transaction, set_id)
    return serial + 1, operations + 1 if counted else None


def _kept(operation: Operation) -> Operation:
    """A replacement is an add to what is empty by then."""
    return Operation.REMOVE if operation is Operation.REMOVE else Operation.ADD


def clear(transaction: sqlite3.Connection, set_id: int) -> None:
    """Remove everything that the set holds."""
    transaction.execute("INSERT OR IGNORE INTO leftovers SELECT file FROM runs WHERE set_id = ?", (set_id,))
    transaction.execute("DELETE FROM runs WHERE set_id = ?", (set_id,))
    transaction.execute("DELETE FROM small_uploads WHERE set_id = ?", (set_id,))


def read_items(transaction: sqlite3.Connection, set_id: int) -> list[StoredRun | SmallUpload]:
    """What the set holds, in order of finish. Raises NotFound, StateCorrupted."""
    _contents(transaction, set_id)
    found: dict[int, StoredRun | SmallUpload] = {}
    for row in transaction.execute(f"{SELECT_RUNS} WHERE set_id = ? ORDER BY number, file", (set_id,)):
        run = run_from_row(row)
        before = found.get(run.number)
        files = before.files + run.files if isinstance(before, StoredRun) else run.files
        found[run.number] = StoredRun(run.number, run.operation, files, run.removes, run.day)
    for row in transaction.execute(f"{SELECT_SMALL} WHERE set_id = ?", (set_id,)):
        small = small_from_row(row)
        found[small.number] = small
    return [found[number] for number in sorted(found)]


def count_items(transaction: sqlite3.Connection, set_id: int) -> tuple[int, int, int]:
    """How many runs and how many small uploads the set has, and how many digests were sent in runs that are not folded."""
    runs, fresh = transaction.execute(
        "SELECT COUNT(DISTINCT number), COALESCE(SUM(sent) FILTER (WHERE operation <> 'folded'), 0) FROM runs WHERE set_id = ?",
        (set_id,),
    ).fetchone()
    (small,) = transaction.execute("SELECT COUNT(*) FROM small_uploads WHERE set_id = ?", (set_id,)).fetchone()
    return int(runs), int(small), int(fresh)


def replace_items(transaction: sqlite3.Connection, set_id: int, numbers: Collection[int], run: StoredRun) -> bool:
    """Put a folded run in the place of what it was made from; False if any of that has gone meanwhile."""
    marks = ", ".join("?" * len(numbers))
    values = (set_id, *numbers)
    found = {
        number
        for table in ("runs", "small_uploads")
        for (number,) in transaction.execute(
            f"SELECT number FROM {table} WHERE set_id = ? AND number IN ({marks})", values
        )
    }
    if found != set(numbers):
        return False
    transaction.execute(
        f"INSERT OR IGNORE INTO leftovers SELECT file FROM runs WHERE set_id = ? AND number IN ({marks})", values
    )
    for table in ("runs", "small_uploads"):
        transaction.execute(f"DELETE FROM {table} WHERE set_id = ? AND number IN ({marks})", values)
    _insert_run(transaction, set_id, run)
    forget_leftovers(transaction, [file.name for file in run.files])
    return True


def add_leftover(transaction: sqlite3.Connection, file: str) -> None:
    """A file that is to go unless a later commit takes it on."""
    transaction.execute("INSERT OR IGNORE INTO leftovers VALUES (?)", (file,))


def new_run_file(transaction: sqlite3.Connection, set_id: int) -> str:
    """The name of a new file, which is to go unless a later commit takes it on. Raises NotFound."""
    file = f"runs/{set_id}-{next_serial(transaction, set_id)}.run"
    add_leftover(transaction, file)
    return file


def read_leftovers(transaction: sqlite3.Connection) -> list[str]:
    """Files that are to go."""
    return [file for (file,) in transaction.execute("SELECT file FROM leftovers")]


def forget_leftovers(transaction: sqlite3.Connection, files: Sequence[str]) -> None:
    """Forget that these files are to go: they are gone, or in use."""
    transaction.executemany("DELETE FROM leftovers WHERE file = ?", [(file,) for file in files])


def run_files(transaction: sqlite3.Connection) -> set[str]:
    """The files of all runs and generations of all sets."""
    return {file for (file,) in transaction.execute("SELECT file FROM runs UNION SELECT file FROM generations")}


def read_generation(transaction: sqlite3.Connection, set_id: int) -> Generation | None:
    """The generation that increments of the set belong to, if any. Raises StateCorrupted."""
    row = transaction.execute(f"{SELECT_GENERATIONS} WHERE set_id = ?", (set_id,)).fetchone()
    return None if row is None else generation_from_row(row)


def end_generation(transaction: sqlite3.Connection, set_id: int) -> None:
    """No increment follows any more."""
    transaction.execute("INSERT OR IGNORE INTO leftovers SELECT file FROM generations WHERE set_id = ?", (set_id,))
    transaction.execute("DELETE FROM generations WHERE set_id = ?", (set_id,))


def put_generation(transaction: sqlite3.Connection, set_id: int, generation: Generation) -> None:
    """In the place of the one before."""
    end_generation(transaction, set_id)
    file = generation.released
    row = (set_id, generation.base, generation.planned, generation.made, file.name, file.sent, file.checksum)
    transaction.execute("INSERT INTO generations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal(*row)))
    forget_leftovers(transaction, [file.name])


def generation_from_row(row: Row) -> Generation:
    """The generation in a row of `SELECT_GENERATIONS`. Raises StateCorrupted."""
    _check_seal(row)
    _, base, planned, made, file, sent, checksum, _ = row
    return Generation(base, planned, made, RunFile(file, sent, checksum))


def _insert_run(transaction: sqlite3.Connection, set_id: int, run: StoredRun) -> None:
    operation = FOLDED if run.operation is None else str(run.operation)
    for file in run.files:
        row = (set_id, run.number, file.name, operation, file.sent, file.checksum, int(run.removes), run.day)
        transaction.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, seal(*row)))


def _contents(transaction: sqlite3.Connection, set_id: int) -> tuple[int, int]:
    query = f"{SELECT_CONTENTS} WHERE set_id = ? AND set_id IN (SELECT set_id FROM sets WHERE deleted = 0)"
    row = transaction.execute(query, (set_id,)).fetchone()
    if row is None:
        raise NotFound("set: it was deleted, or never made", field="name")
    return contents_from_row(row)


def _write_contents(transaction: sqlite3.Connection, set_id: int, serial: int, operations: int) -> None:
    row = (set_id, serial, operations)
    transaction.execute("INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?)", (*row, seal(*row)))


def contents_from_row(row: Row) -> tuple[int, int]:
    """Serial and operations in a row of `SELECT_CONTENTS`. Raises StateCorrupted."""
    _check_seal(row)
    return int(row[1]), int(row[2])


def run_from_row(row: Row) -> StoredRun:
    """The part of a run in a row of `SELECT_RUNS`. Raises StateCorrupted."""
    _check_seal(row)
    _, number, file, operation, sent, checksum, removes, day, _ = row
    with damage(LEDGER_NAME):
        kept = None if operation == FOLDED else Operation(operation)
        return StoredRun(number, kept, (RunFile(file, sent, checksum),), bool(removes), day)


def small_from_row(row: Row) -> SmallUpload:
    """The small upload in a row of `SELECT_SMALL`. Raises StateCorrupted."""
    _check_seal(row)
    _, number, operation, digests, day, _ = row
    with damage(LEDGER_NAME):
        return SmallUpload(number, Operation(operation), np.frombuffer(digests, dtype="<u8").astype(np.uint64), day)


def _check_seal(row: Row) -> None:
    if seal(*row[:-1]) != row[-1]:
        raise StateCorrupted(f"{LEDGER_NAME}: a row of what set {row[0]} holds is damaged", file=LEDGER_NAME)
