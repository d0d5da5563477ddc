"""The SQLite file under the ledger: durable settings that are read back, one transaction at a time, errors by meaning.

One process, one connection, and a lock around each transaction. All transactions take SQLite's write lock first (BEGIN
IMMEDIATE, so that a check and the write behind it see one state); a connection for each thread would only trade a fair lock
for SQLite's polling. SQLite's lock of the file is held from the first transaction until the file is closed: a second process gets
Unavailable, and the journal stays open, which saves a sync of the folder in every commit.

Never open and close the file by other means while a connection is open: POSIX drops the locks a process holds on a file as
soon as the process closes any descriptor of it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilset.core.privacy.budget import parse_delta
from veilset.errors import FailedPrecondition, InvalidInput, StateCorrupted, StorageFull, Unavailable, VeilsetError
from veilset_server.state.durability import end_process, short_of
from veilset_server.state.ledger.schema import WITHIN_TOTAL

LEDGER_NAME = "ledger.db"

OLDEST_SQLITE = (3, 37, 0)
"""First with STRICT tables."""

BUSY_SECONDS = 20.0
"""How long a transaction waits for another process before it gives up with Unavailable."""

# What is set, and what SQLite says it then is. TRUNCATE: cutting the journal is the commit, is synced, and leaves no old
# content on the disk. EXCLUSIVE comes after it, since it leaves the journal of a killed process in place once it is undone. No
# memory map: a bad disk would kill the process by SIGBUS in place of an error.
_SETTINGS: tuple[tuple[str, str, object], ...] = (
    ("busy_timeout", str(int(BUSY_SECONDS * 1000)), int(BUSY_SECONDS * 1000)),
    ("journal_mode", "TRUNCATE", "truncate"),
    ("locking_mode", "EXCLUSIVE", "exclusive"),
    ("synchronous", "EXTRA", 3),
    ("foreign_keys", "ON", 1),
    ("recursive_triggers", "ON", 1),
    ("ignore_check_constraints", "OFF", 0),
    ("secure_delete", "ON", 1),
    ("cell_size_check", "ON", 1),
    ("mmap_size", "0", 0),
    ("temp_store", "MEMORY", 2),
)


class LedgerFile:
    """An open ledger file. Raises StateCorrupted or FailedPrecondition naming the file if it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        if sqlite3.sqlite_version_info < OLDEST_SQLITE or sqlite3.threadsafety != 3:
            raise FailedPrecondition(f"SQLite {sqlite3.sqlite_version}: needs 3.37 or later, built thread-safe")
        uri = path.absolute().as_uri() + "?mode=rw"  # never makes a file
        try:
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except sqlite3.Error as error:
            raise self._by_meaning(error) from error
        try:
            self._connection.create_function(WITHIN_TOTAL, 2, _within_total, deterministic=True)
            with damage(str(path)), self._meaningful_errors():
                self._apply_settings()
        except BaseException:
            self.close()
            raise

    def _apply_settings(self) -> None:
        for name, value, expected in _SETTINGS:
            self._connection.execute(f"PRAGMA {name} = {value}")
            row = self._connection.execute(f"PRAGMA {name}").fetchone()
            if row is None or row[0] != expected:
                raise FailedPrecondition(
                    f"{self.path}: SQLite refuses {name} = {value}, without which it is not durable"
                )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction: on disk when the block has ended, undone if it raised."""
        with self._lock, self._meaningful_errors():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def _meaningful_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            meaning = self._by_meaning(error)
            if meaning is error:
                raise
            raise meaning from error

    def _undo(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the journal stays, and undoes it at the next open
            end_process(f"rollback of {self.path.name}", error)

    def _by_meaning(self, error: sqlite3.Error | UnicodeDecodeError) -> Exception:
        """What an SQLite error means here. An I/O error leaves the outcome of a commit open, so it ends the process."""
        name = self.path.name
        if isinstance(error, UnicodeDecodeError):  # of SQLite's complaint about a table name that is no longer text
            return StateCorrupted(f"{name}: damaged ({error})", file=name)
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StateCorrupted(f"{name}: damaged ({error})", file=name)
        match code & 0xFF:
            case sqlite3.SQLITE_IOERR:
                end_process(f"{name}: {getattr(error, 'sqlite_errorname', 'I/O')}", error)
            case sqlite3.SQLITE_FULL:
                return StorageFull(f"{name}: the disk of the state folder is full", file=name)
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return Unavailable(f"{name}: another process held it for more than {BUSY_SECONDS:g} s", file=name)
            case sqlite3.SQLITE_NOMEM:
                return short_of("memory")
            case sqlite3.SQLITE_CANTOPEN if self._may_be_opened():  # its journal was not: SQLite does not say why
                return short_of("file descriptors")
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return StateCorrupted(f"{name}: cannot be opened and written ({error})", file=name)
        return error

    def _may_be_opened(self) -> bool:
        """Whether the file is there, and it and its folder are ours to write."""
        return (
            self.path.is_file()
            and os.access(self.path, os.R_OK | os.W_OK)
            and os.access(self.path.parent, os.W_OK | os.X_OK)
        )


@contextmanager
def damage(file: str) -> Iterator[None]:
    """Inside, nothing can fail but on purpose, unless the file's content is not what was once written: StateCorrupted."""
    try:
        yield
    except VeilsetError as error:
        if isinstance(error, InvalidInput):
            raise StateCorrupted(f"{file}: holds what was never written ({error})", file=Path(file).name) from error
        raise
    except (sqlite3.Error, ValueError, TypeError, OverflowError, KeyError, AttributeError, RecursionError) as error:
        raise StateCorrupted(f"{file}: damaged ({error})", file=Path(file).name) from error


def _within_total(spent: str, total: str) -> int:
    return int(parse_delta(spent) <= parse_delta(total))
