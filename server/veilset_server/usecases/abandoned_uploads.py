"""Drops uploads that were begun and never continued.

The age of an upload counts only time in which the service ran and could have received more: monotonic clock, added up over
restarts in one small JSON file. A wrong wall clock, or a service that was down for a week, drops nothing. Without the file
abandoned uploads only stay longer, so a damaged one is logged and replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from veilset_server.records import Upload, UploadState
from veilset_server.state.durability import read_regular, write_file
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs

PARTS = 100
"""The ages are written down this often in the time that an upload may be left alone: a restart forgets no more."""

FILE_NAME = "idle.json"

SpoolTrace = tuple[int, int] | None
IdleAges = dict[tuple[int, int], tuple[float, SpoolTrace]]
"""(set id, serial of the upload's first spool) → (seconds without a message, trace of its spools)."""

log = structlog.get_logger(__name__)


class AbandonedUploads:
    """Drops open uploads that were left alone for ``idle_seconds``. Not thread-safe."""

    def __init__(
        self,
        ledger: SqliteLedger,
        runs: Runs,
        record: IdleFile,
        idle_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``monotonic``: seconds of a clock that never jumps. Ages go on from ``record``."""
        self._ledger = ledger
        self._runs = runs
        self._record = record
        self._idle_seconds = idle_seconds
        self._monotonic = monotonic
        self._ages = record.read()
        self._looked = self._written = monotonic()

    def drop(self) -> int:
        """Drop every open upload of which no part was opened, resumed or appended to for so long; returns how many.

        A stream that still holds a dropped upload is refused with NotFound when it next appends or finishes. The spools go first:
        a crash in between leaves an upload without elements, which is dropped another time. Not to run while an upload is being
        opened. Raises StorageFull.
        """
        now = self._monotonic()
        passed, self._looked = now - self._looked, now
        dropped = 0
        ages: IdleAges = {}
        for (set_id, upload_id), parts in _by_upload(self._ledger.all_open_uploads()).items():
            key = set_id, parts[0].serial
            traces = [self._runs.spool_trace(part) for part in parts]
            seconds = self._seconds(key, _joined(traces), passed)
            if seconds >= self._idle_seconds and self._remove(parts, traces):
                dropped += self._ledger.drop_upload(set_id, upload_id)
            else:
                ages[key] = seconds, _joined(traces)
        self._ages = ages
        if now - self._written >= self._idle_seconds / PARTS:
            self._written = now
            self._record.write(ages)
        return dropped

    def _seconds(self, key: tuple[int, int], trace: SpoolTrace, passed: float) -> float:
        seconds, before = self._ages.get(key, (0.0, None))
        return seconds + passed if key in self._ages and before == trace else 0.0

    def _remove(self, parts: Sequence[Upload], traces: Sequence[SpoolTrace]) -> bool:
        """Sealed parts last: those that may still change decide."""
        pairs = sorted(zip(parts, traces, strict=True), key=lambda pair: pair[0].state is UploadState.SEALED)
        return all(self._runs.remove_spool(part, trace) for part, trace in pairs)


def _by_upload(parts: Sequence[Upload]) -> dict[tuple[int, str], list[Upload]]:
    found: dict[tuple[int, str], list[Upload]] = {}
    for part in parts:
        found.setdefault((part.set_id, part.upload_id), []).append(part)
    return found


def _joined(traces: Sequence[SpoolTrace]) -> SpoolTrace:
    """All bytes, and the latest change."""
    there = [trace for trace in traces if trace is not None]
    return (sum(size for size, _ in there), max(changed for _, changed in there)) if there else None


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
