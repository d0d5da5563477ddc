"""How long open uploads received nothing, over restarts: one small JSON file. Uploads are named by the serials of their spools.

Without it abandoned uploads only stay longer, so a damaged file is logged and replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import structlog

from veilset_server.state.durability import read_regular, write_file

FILE_NAME = "idle.json"

SpoolTrace = tuple[int, int] | None
IdleAges = dict[tuple[int, int], tuple[float, SpoolTrace]]
"""(set id, serial of the upload's first spool) → (seconds without a message, trace of its spools)."""

log = structlog.get_logger(__name__)


class IdleFile:
    """The ages of open uploads in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def read(self) -> IdleAges:
        """What was last written; empty without a file."""
        try:
            return parse_ages(read_regular(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("ages of open uploads forgotten", file=FILE_NAME, kind=type(error).__name__)
            return {}

    def write(self, ages: IdleAges) -> None:
        """Put ``ages`` in its place, if there are or were any. Raises StorageFull."""
        if ages or self._path.exists():
            write_file(self._path, format_ages(ages))


def format_ages(ages: IdleAges) -> bytes:
    """The file as JSON: one row for each open upload."""
    return json.dumps([[*key, *age] for key, age in ages.items()], indent=0).encode()


def parse_ages(data: bytes) -> IdleAges:
    """What `format_ages` made. Raises ValueError for anything else."""
    try:
        return dict(map(_parse_row, json.loads(data)))
    except (TypeError, RecursionError) as error:
        raise ValueError("not a list of rows") from error


def _parse_row(row: Any) -> tuple[tuple[int, int], tuple[float, tuple[int, int] | None]]:
    match row:
        case [int(set_id), int(upload), float(seconds), None] if seconds >= 0:
            return (set_id, upload), (seconds, None)
        case [int(set_id), int(upload), float(seconds), [int(size), int(changed)]] if seconds >= 0:
            return (set_id, upload), (seconds, (size, changed))
    raise ValueError("row")
