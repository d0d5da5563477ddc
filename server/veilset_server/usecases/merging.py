"""From accepted uploads to the raw vector. An accepted upload is part of its set whatever happens: so before anything else is
done to a set, or told of it, what a crash or a fault left between accepted and finished is completed.

The merge may be repeated, as it only ever sets bits. Where a file that it needs is damaged the set refuses, naming the file,
and all others go on.
"""

from __future__ import annotations

from typing import cast

import structlog

from veilset.errors import StateCorrupted, VeilsetError
from veilset_server.ports import Ledger, UploadSpool, VectorSpool, VectorStore
from veilset_server.records import StoredSet
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merge_work import ElementWork, MergeWork, VectorWork
from veilset_server.usecases.upload_ids import UploadContent, content_of
from veilset_server.usecases.upload_session import OpenSpool

log = structlog.get_logger(__name__)


class Merging:
    """Merges accepted uploads, one at a time per set. ``set_locks`` guard the raw vectors.

    refusing: ids of the sets that the start could not complete since a file is damaged, and nobody has since.
    """

    def __init__(self, ledger: Ledger, files: VectorStore, set_locks: KeyedLocks) -> None:
        self._ledger = ledger
        self._files = files
        self._set_locks = set_locks
        self.refusing: set[int] = set()

    def complete(self, stored: StoredSet) -> None:
        """Merge what is accepted and not finished, in the order in which it was opened; no-op if there is nothing.

        Raises StateCorrupted naming the damaged file, StorageFull.
        """
        with self._set_locks[stored.set_id]:
            for upload in self._ledger.merging_uploads(stored.set_id):
                self.merge(stored, upload.upload_id)
            self.refusing.discard(stored.set_id)

    def complete_all(self) -> int:
        """The same for every set, at a start; returns how many uploads. A set that cannot be completed is logged, and will
        refuse; the others go on."""
        completed = 0
        for set_id in dict.fromkeys(upload.set_id for upload in self._ledger.merging_uploads()):
            waiting = len(self._ledger.merging_uploads(set_id))
            stored = self._ledger.get_set_by_id(set_id)
            try:
                self.complete(stored)
            except VeilsetError as error:
                name, file = stored.description.name, error.details.get("file", "")
                log.error("set refuses", set=name, reason=error.reason, file=file)  # noqa: TRY400 - by reason, not by text
                if isinstance(error, StateCorrupted):
                    self.refusing.add(set_id)
            completed += waiting - len(self._ledger.merging_uploads(set_id))
        return completed

    def merge(self, stored: StoredSet, upload_id: str, spool: OpenSpool | None = None) -> None:
        """Merge one accepted upload; the caller holds the set's lock. Raises StateCorrupted, StorageFull.

        spool: its own, still open, which is closed here; else it is opened, and so read once more from end to end.
        """
        work = self._work(stored, upload_id, spool)
        length = stored.description.filter.vector_bytes
        try:
            record = self._ledger.vector_record(stored.set_id)
            with self._files.change_vector(
                stored.set_id, length, upload_id, record, touched=work.touched, positions=work.positions
            ) as vector:
                new = work.or_into(vector)
        finally:
            work.close()
        self._ledger.finish_upload(stored.set_id, upload_id, new, self._files.vector_root(stored.set_id, length))
        self._files.remove_spool(stored.set_id, upload_id)

    def _work(self, stored: StoredSet, upload_id: str, spool: OpenSpool | None) -> MergeWork:
        parameters = stored.description.filter
        if content_of(upload_id) is UploadContent.VECTOR:
            pieces = spool or self._files.open_vector_spool(stored.set_id, upload_id, accepted=True)
            return VectorWork(cast(VectorSpool, pieces))
        digests = spool or self._files.open_spool(stored.set_id, upload_id, accepted=True)
        return ElementWork(cast(UploadSpool, digests), parameters)
