"""Letting go of uploads that nobody continues.

How long an upload has been left alone is told in time that the service was there to take it up: by the monotonic clock, added
up over restarts. The wall clock has no say, so one that is wrong, at a start or later, drops nothing; nor does a service that
was down for a week.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from veilset_server.ports import IdleRecord, Ledger, SpoolTrace, VectorStore
from veilset_server.records import Upload

PARTS = 100
"""The ages are written down this often in the time that an upload may be left alone: a restart forgets no more."""


@dataclass(frozen=True, slots=True)
class Idle:
    """How long an upload was left alone, in seconds, and the trace of its spool then."""

    seconds: float
    trace: SpoolTrace


class AbandonedUploads:
    """Drops open uploads that were left alone for ``idle_seconds``. Not thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        files: VectorStore,
        record: IdleRecord,
        idle_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``monotonic``: seconds of a clock that never jumps. Ages go on from ``record``."""
        self._ledger = ledger
        self._files = files
        self._record = record
        self._idle_seconds = idle_seconds
        self._monotonic = monotonic
        self._ages = {key: Idle(seconds, trace) for key, (seconds, trace) in record.read().items()}
        self._looked = self._written = monotonic()

    def drop(self) -> int:
        """Drop every open upload that was neither opened, resumed nor appended to for so long; returns how many.

        Accepted uploads stay whatever their age. A stream that still holds a dropped upload is refused with NotFound when it
        next appends or finishes. The spool goes first: a crash in between leaves an upload without elements, which is
        dropped another time. Not to run while an upload is being opened. Raises StorageFull.
        """
        now = self._monotonic()
        passed, self._looked = now - self._looked, now
        dropped = 0
        ages: dict[tuple[int, str], Idle] = {}
        for upload in self._ledger.all_open_uploads():
            idle = self._age(upload, passed)
            set_id, upload_id = upload.set_id, upload.upload_id
            if idle.seconds >= self._idle_seconds and self._files.remove_idle_spool(set_id, upload_id, idle.trace):
                dropped += self._ledger.drop_upload(set_id, upload_id)
            else:
                ages[_key(upload)] = idle
        self._ages = ages
        if now - self._written >= self._idle_seconds / PARTS:
            self._written = now
            self._record.write({key: (idle.seconds, idle.trace) for key, idle in ages.items()})
        return dropped

    def _age(self, upload: Upload, passed: float) -> Idle:
        trace = self._files.spool_trace(upload.set_id, upload.upload_id)
        before = self._ages.get(_key(upload))
        return Idle(before.seconds + passed, trace) if before and before.trace == trace else Idle(0.0, trace)


def _key(upload: Upload) -> tuple[int, str]:
    """By the hash of its id: an upload id is its producer's secret."""
    return upload.set_id, hashlib.sha256(upload.upload_id.encode("utf-8", "surrogatepass")).hexdigest()
