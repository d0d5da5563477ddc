"""The SQLite file under the ledger: settings without which it refuses to run, and errors by their meaning."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from storage_examples import add_set, new_ledger, open_ledger, read_line, start_worker

from veilset.errors import FailedPrecondition, StateCorrupted, Unavailable
from veilset_server.state.ledger import file as ledger_file
from veilset_server.state.ledger.file import LEDGER_NAME, LedgerFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An existing ledger."""
    new_ledger(tmp_path).close()
    return tmp_path / LEDGER_NAME


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "truncate"),
        ("locking_mode", "exclusive"),
        ("synchronous", 3),
        ("foreign_keys", 1),
        ("recursive_triggers", 1),
        ("secure_delete", 1),
    ],
)
def test_the_settings_are_in_force(path: Path, pragma: str, value: object) -> None:
    """On the connection that is used."""
    file = LedgerFile(path)
    with file.transaction() as transaction:
        assert transaction.execute(f"PRAGMA {pragma}").fetchone() == (value,)
        assert transaction.in_transaction
    file.close()


@pytest.mark.parametrize("setting", [("synchronous", "EXTRA", 2), ("no_such_setting", "1", 1)])
def test_a_setting_that_sqlite_does_not_take_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str, object]
) -> None:
    """SQLite ignores what it does not know; reading back tells."""
    monkeypatch.setattr(ledger_file, "_SETTINGS", (setting,))
    with pytest.raises(FailedPrecondition, match=setting[0]):
        LedgerFile(path)


def test_a_write_ahead_log_is_turned_off(path: Path) -> None:
    """Some other program may have switched it on: without a sync of the log per commit a power cut would give budget back."""
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    open_ledger(path.parent).close()
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_an_sqlite_that_is_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version, before anything is opened."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 9))
    with pytest.raises(FailedPrecondition, match="SQLite"):
        LedgerFile(path)


def test_a_path_that_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    """Missing, or not a file; nothing is made."""
    for target in (tmp_path / "missing.db", tmp_path):
        with pytest.raises(StateCorrupted, match=target.name):
            LedgerFile(target)
    assert list(tmp_path.iterdir()) == []


def test_paths_are_taken_literally(tmp_path: Path) -> None:
    """A folder's name cannot become part of the URI."""
    folder = tmp_path / "a?mode=memory#b%20c"
    folder.mkdir()
    with new_ledger(folder) as ledger:
        add_set(ledger)
    with open_ledger(folder) as ledger:
        assert ledger.get_set("guests").set_id == 1


def test_a_second_process_gets_unavailable_while_the_first_has_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time to wait; and the file when the first has closed it."""
    worker = start_worker("hold", path.parent, "")
    assert read_line(worker) == "held"
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(ledger_file, "_SETTINGS", (("busy_timeout", "50", 50), *ledger_file._SETTINGS[1:]))
    with pytest.raises(Unavailable, match=LEDGER_NAME):
        open_ledger(path.parent)
    worker.communicate("go\n")
    with open_ledger(path.parent) as ledger:
        assert add_set(ledger).set_id == 1


def test_a_ledger_whose_file_was_taken_away_is_not_written_on(path: Path) -> None:
    """A commit to a file without a name would be lost at the end of the process."""
    with open_ledger(path.parent) as ledger:
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(StateCorrupted, match=LEDGER_NAME):
            add_set(ledger)


def test_a_mistake_in_our_own_statement_keeps_its_kind(path: Path) -> None:
    """It is a bug, not the file's damage."""
    file = LedgerFile(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"), file.transaction() as transaction:
        transaction.execute("SELECT * FROM nowhere")
    file.close()
