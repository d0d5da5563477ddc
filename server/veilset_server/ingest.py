"""Receiving uploads. Elements wait in the upload's own spool until finish; only then do they reach the raw vector.

So the end of a stream decides nothing, a resumed upload continues where its spool ends, and a publish sees finished
uploads only. Accepting a finish is one ledger commit after the spool is on disk; the merge behind it may be repeated
after a crash, as it only ever sets bits.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from veilset.core import bloom
from veilset.core.hashing import digests, unpack_digests
from veilset.core.normalization import normalize
from veilset.core.params import MAX_ELEMENT_BYTES, HashScheme, check_integer
from veilset.errors import InvalidInput, OutOfSequence, UploadMismatch
from veilset_server.abandoned_uploads import drop_abandoned_uploads
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Ledger, UploadSpool, VectorStore
from veilset_server.records import StoredSet, Upload, UploadState

MAX_BATCH_ELEMENTS = 1 << 16
MAX_UPLOAD_ID = 128


class UploadSession:
    """One stream's hold on an upload. A later stream with the same id takes the upload over."""

    def __init__(self, stored: StoredSet, upload: Upload, spool: UploadSpool | None) -> None:
        self.stored = stored
        self.upload_id = upload.upload_id
        self._count = upload.count
        self._spool = spool
        self._lock = threading.Lock()
        self._saw_digests = False

    @property
    def finished(self) -> bool:
        """Whether the upload was accepted earlier; there is nothing to send."""
        return self._spool is None

    @property
    def position(self) -> tuple[int, int]:
        """Highest batch held (0 once finished) and the number of elements in all of them."""
        return (self._spool.sequence, self._spool.elements) if self._spool else (0, self._count)

    def add_elements(self, sequence: int, elements: list[bytes]) -> tuple[int, int]:
        """Hash and hold a batch of raw elements; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        description = self.stored.description
        if description.filter.scheme is not HashScheme.MMH3:
            raise InvalidInput(
                "elements", f"digests hashed at the producer, since scheme {description.filter.scheme} is keyed"
            )
        _check_batch_length("elements", len(elements))
        for element in elements:
            if not 1 <= len(element) <= MAX_ELEMENT_BYTES:
                raise InvalidInput("elements", f"1 to {MAX_ELEMENT_BYTES} bytes each", len(element))
        normalized = normalize(elements, description.normalization)
        return self._append(sequence, digests(normalized, description.filter.scheme, description.filter.seed))

    def add_digests(self, sequence: int, packed: bytes) -> tuple[int, int]:
        """Hold a batch of packed digests; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        hashed = unpack_digests(packed)
        _check_batch_length("digests", len(hashed))
        self._saw_digests = True
        return self._append(sequence, hashed)

    def _append(self, sequence: int, hashed: NDArray[np.uint64]) -> tuple[int, int]:
        with self._lock:
            spool = self._require_spool()
            if sequence > spool.sequence:  # lower ones are replays of what is held
                spool.append(sequence, hashed)
            elif sequence < 1:
                raise InvalidInput("sequence", "at least 1", sequence)
            return spool.sequence, spool.elements

    def check_finish(self, count: int, sha256: bytes) -> int:
        """Compare the finish message with what is held; sync the spool; return the count. Raises UploadMismatch."""
        with self._lock:
            spool = self._require_spool()
            if sha256 and len(sha256) != 32:
                raise InvalidInput("sha256", "empty or 32 bytes long", len(sha256))
            if not sha256 and self._saw_digests:
                raise InvalidInput("sha256", "32 bytes long where digests were sent")
            if count != spool.elements:
                raise UploadMismatch(
                    f"count: finish says {count} elements, {spool.elements} were received", field="count"
                )
            if sha256 and sha256 != spool.sha256():
                raise UploadMismatch("sha256: finish disagrees with the digests received", field="sha256")
            spool.sync()
            return count

    def _require_spool(self) -> UploadSpool:
        if self._spool is None:
            raise OutOfSequence("upload: taken over by another stream, or finished", field="upload_id")
        return self._spool

    def close(self) -> None:
        """Let go of the spool; what is held stays for a resume."""
        with self._lock:
            if self._spool is not None:
                self._spool.close()
                self._spool = None


class Ingest:
    """Opens, finishes and repairs uploads. ``set_locks`` also guards the raw vectors against a concurrent publish."""

    def __init__(self, ledger: Ledger, files: VectorStore, set_locks: KeyedLocks) -> None:
        self._ledger = ledger
        self._files = files
        self._set_locks = set_locks
        self._guard = threading.Lock()
        self._sessions: dict[tuple[int, str], UploadSession] = {}

    def open(self, set_name: str, upload_id: str) -> UploadSession:
        """Open or resume an upload; a stream that held it before loses it. Raises NotFound, InvalidInput."""
        if not 1 <= len(upload_id) <= MAX_UPLOAD_ID:
            raise InvalidInput("upload_id", f"1 to {MAX_UPLOAD_ID} characters", len(upload_id))
        stored = self._ledger.get_set(set_name)
        with self._set_locks[stored.set_id]:  # no merge is under way, and the set is not being deleted
            self.repair(stored, upload_id)
            with self._guard:
                return self._hold(stored, self._ledger.open_upload(stored.set_id, upload_id))

    def _hold(self, stored: StoredSet, upload: Upload) -> UploadSession:
        upload_id = upload.upload_id
        key = (stored.set_id, upload_id)
        before = self._sessions.pop(key, None)
        if before is not None:
            before.close()
        spool = self._files.open_spool(stored.set_id, upload_id) if upload.state is UploadState.OPEN else None
        session = UploadSession(stored, upload, spool)
        if spool is not None:
            self._sessions[key] = session
        return session

    def close(self, session: UploadSession) -> None:
        """The stream ended, in whatever way; what is held stays for a resume."""
        with self._guard:
            if self._holds(session):
                del self._sessions[session.stored.set_id, session.upload_id]
        session.close()

    def _holds(self, session: UploadSession) -> bool:
        return self._sessions.get((session.stored.set_id, session.upload_id)) is session

    def finish(self, session: UploadSession, count: int, sha256: bytes) -> int:
        """Make the upload part of the set, durably; returns its element count.

        Raises UploadMismatch (the upload is discarded: a retry starts over) or InvalidInput (it stays).
        """
        set_id, upload_id = session.stored.set_id, session.upload_id
        check_integer("count", count, 0, 1 << 62)
        try:
            session.check_finish(count, sha256)
        except UploadMismatch:
            with self._guard:
                if self._holds(session):
                    del self._sessions[set_id, upload_id]
                    session.close()
                    self._files.remove_spool(set_id, upload_id)
            raise
        with self._set_locks[set_id]:
            with self._guard:  # a stream that took the upload over may have added to it: then this finish is void
                if not self._holds(session):
                    raise OutOfSequence("upload: taken over by another stream", field="upload_id")
                self._ledger.accept_upload(set_id, upload_id, count)
                del self._sessions[set_id, upload_id]
            session.close()
            self._merge(session.stored, upload_id)
        return count

    def drop_abandoned(self, before_us: int) -> int:
        """Drop open uploads that nobody opened or added to since ``before_us``; returns how many."""
        with self._guard:  # none is opened meanwhile
            return drop_abandoned_uploads(self._ledger, self._files, before_us)

    def repair(self, stored: StoredSet, upload_id: str) -> None:
        """Carry on with an accepted upload that a crash interrupted; no-op if it is finished by now."""
        with self._set_locks[stored.set_id]:
            if self._ledger.open_upload(stored.set_id, upload_id).state is UploadState.MERGING:
                self._merge(stored, upload_id)

    def repair_by_id(self, set_id: int, upload_id: str) -> None:
        """The same for the start, which knows ids only."""
        self.repair(self._ledger.get_set_by_id(set_id), upload_id)

    def _merge(self, stored: StoredSet, upload_id: str) -> None:
        parameters = stored.description.filter
        spool = self._files.open_spool(stored.set_id, upload_id, accepted=True)
        try:
            with self._files.open_vector(stored.set_id, parameters.vector_bytes) as vector:
                new = sum(bloom.insert(vector, parameters, hashed) for hashed in spool.read())
                self._files.sync_vector(vector)
        finally:
            spool.close()
        self._ledger.finish_upload(stored.set_id, upload_id, new)
        self._files.remove_spool(stored.set_id, upload_id)


def _check_batch_length(field: str, length: int) -> None:
    if not 1 <= length <= MAX_BATCH_ELEMENTS:
        raise InvalidInput(field, f"1 to {MAX_BATCH_ELEMENTS} in a batch", length)
