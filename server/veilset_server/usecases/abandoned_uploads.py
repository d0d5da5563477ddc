"""Drops uploads that were begun and never continued.

The age of an upload counts only time in which the service ran and could have received more: monotonic clock, added up over
restarts. A wrong wall clock, or a service that was down for a week, drops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from veilset_server.records import Upload, UploadState
from veilset_server.state.idle_file import IdleAges, IdleFile, SpoolTrace
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs

PARTS = 100
"""The ages are written down this often in the time that an upload may be left alone: a restart forgets no more."""


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
