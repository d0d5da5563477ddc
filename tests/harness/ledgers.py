"""What a service's ledger says, running or dead: plain SQLite reads a copy, as a running service holds the file for itself."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_NAMES = ("ledger.db", "ledger.db-journal")


@contextmanager
def ledger_copy(state: Path) -> Iterator[sqlite3.Connection]:
    """What the ledger of the folder ``state`` would be if it were opened now: a half-made transaction is undone."""
    files = _files(state)
    while files != (again := _files(state)):  # a commit came in between
        files = again
    with tempfile.TemporaryDirectory() as folder:
        for name, content in zip(_NAMES, files, strict=True):
            (Path(folder) / name).write_bytes(content)
        with closing(sqlite3.connect(Path(folder) / _NAMES[0])) as copy:
            yield copy


def _files(state: Path) -> list[bytes]:
    return [(state / name).read_bytes() if (state / name).exists() else b"" for name in _NAMES]
