"""Letting go of uploads that nobody continues."""

from __future__ import annotations

from veilset_server.ports import Ledger, VectorStore


def drop_abandoned_uploads(ledger: Ledger, files: VectorStore, before_us: int) -> int:
    """Drop every open upload that was opened, resumed and appended to only before ``before_us``; returns how many.

    before_us: microseconds since the Unix epoch. Accepted uploads stay whatever their age. A stream that still holds a dropped
    upload is refused with NotFound when it next appends or finishes. The spool goes first: a crash in between leaves an upload
    without elements, which is dropped the next time. Not to run while an upload is being opened.
    """
    dropped = 0
    for upload in ledger.uploads_opened_before(before_us):
        if files.remove_idle_spool(upload.set_id, upload.upload_id, before_us):
            dropped += ledger.drop_upload(upload.set_id, upload.upload_id)
    return dropped
