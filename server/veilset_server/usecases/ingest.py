"""Receiving uploads. Elements wait in the upload's own spool until finish; only then do they reach the raw vector.

So the end of a stream decides nothing, a resumed upload continues where its spool ends, and a publish sees finished
uploads only. Accepting a finish is one ledger commit after the spool is on disk; the merge behind it may be repeated
after a crash, as it only ever sets bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from veilset.errors import AlreadyExists, InvalidInput, OutOfSequence, UploadMismatch
from veilset_server.limits import Limits
from veilset_server.ports import Ledger, VectorStore
from veilset_server.principals import EVERYBODY, Principal
from veilset_server.records import StoredSet, Upload, UploadQuota, UploadState
from veilset_server.usecases.abandoned_uploads import AbandonedUploads
from veilset_server.usecases.element_session import ElementSession
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.upload_ids import UploadContent, kept_id, prefixes
from veilset_server.usecases.upload_session import MAX_UPLOAD_ID, UploadSession

AnySession = UploadSession[Any]
Session = TypeVar("Session", bound=AnySession)
Spool = TypeVar("Spool")


class Ingest:
    """Opens and finishes uploads. ``set_locks`` also guards the raw vectors against a concurrent publish."""

    def __init__(
        self,
        ledger: Ledger,
        files: VectorStore,
        set_locks: KeyedLocks,
        merging: Merging,
        abandoned: AbandonedUploads,
        limits: Limits | None = None,
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._set_locks = set_locks
        self._merging = merging
        self._abandoned = abandoned
        self._limits = limits or Limits()
        self._guard = threading.Lock()
        self._sessions: dict[tuple[int, str], AnySession] = {}

    def open(self, set_name: str, upload_id: str, principal: Principal = EVERYBODY) -> ElementSession:
        """Open or resume the principal's upload of elements; a stream that held it before loses it.

        Raises NotFound, InvalidInput, LimitExceeded (too many are open), and StateCorrupted where a file of the set is damaged.
        """
        _check_upload_id(upload_id)
        make = partial(_make_session, ElementSession, self._files.open_spool)
        return self._open(self._ledger.get_set(set_name), UploadContent.ELEMENTS, upload_id, principal, make)

    def _open(
        self,
        stored: StoredSet,
        content: UploadContent,
        given_id: str,
        principal: Principal,
        make: Callable[[StoredSet, Upload], Session],
    ) -> Session:
        upload_id = kept_id(content, principal, given_id)
        quota = UploadQuota(
            prefixes(principal), self._limits.max_open_uploads_per_principal, self._limits.max_open_uploads
        )
        with self._set_locks[stored.set_id]:  # no merge is under way, and the set is not being deleted
            self._merging.complete(stored)
            with self._guard:
                upload = self._ledger.open_upload(stored.set_id, upload_id, quota)
                before = self._sessions.pop((stored.set_id, upload_id), None)
                if before is not None:
                    before.close()
            session = make(stored, upload)  # reads a resumed spool through, and other sets need not wait for that
            try:
                with self._guard:  # again, as it may have been dropped as abandoned in the meantime
                    self._ledger.open_upload(stored.set_id, upload_id, quota)
                    if not session.finished:
                        self._sessions[stored.set_id, upload_id] = session
            except BaseException:
                session.close()
                raise
            return session

    def close(self, session: AnySession) -> None:
        """The stream ended, in whatever way; what is held stays for a resume."""
        with self._guard:
            if self._holds(session):
                del self._sessions[session.stored.set_id, session.upload_id]
        session.close()

    def _holds(self, session: AnySession) -> bool:
        return self._sessions.get((session.stored.set_id, session.upload_id)) is session

    def finish(self, session: AnySession, total: int, checksum: bytes) -> int:
        """Make the upload part of the set, durably; returns its total: elements, or bytes of a vector.

        Raises UploadMismatch (the upload is discarded: a retry starts over), InvalidInput, StateCorrupted (it stays).
        """
        set_id, upload_id = session.stored.set_id, session.upload_id
        if session.finished:
            if total != session.total_held:
                raise AlreadyExists(
                    "upload_id: an upload of that id was finished with other elements; nothing was added, give these an id of "
                    "their own",
                    field="upload_id",
                )
            return total
        try:
            session.check_finish(total, checksum)
        except UploadMismatch:
            with self._guard:
                if self._holds(session):
                    del self._sessions[set_id, upload_id]
                    session.close()
                    self._files.remove_spool(set_id, upload_id)
            raise
        with self._set_locks[set_id]:
            self._merging.complete(session.stored)  # one upload after the other: what a vector holds can be told then
            with self._guard:  # a stream that took the upload over may have added to it: then this finish is void
                if not self._holds(session):
                    raise OutOfSequence("upload: taken over by another stream", field="upload_id")
                self._ledger.accept_upload(set_id, upload_id, total)
                del self._sessions[set_id, upload_id]
            self._merging.merge(session.stored, upload_id, session.hand_over())
        return total

    def drop_abandoned(self) -> int:
        """Drop open uploads that nobody opened or added to for long; returns how many."""
        with self._guard:  # none is opened meanwhile
            return self._abandoned.drop()


def _make_session(
    make: Callable[[StoredSet, Upload, Spool | None], Session],
    open_spool: Callable[[int, str], Spool],
    stored: StoredSet,
    upload: Upload,
) -> Session:
    """A session on the upload's spool; on none if it is finished."""
    is_open = upload.state is UploadState.OPEN
    return make(stored, upload, open_spool(stored.set_id, upload.upload_id) if is_open else None)


def _check_upload_id(upload_id: str) -> None:
    if not 1 <= len(upload_id) <= MAX_UPLOAD_ID:
        raise InvalidInput("upload_id", f"1 to {MAX_UPLOAD_ID} characters", len(upload_id))
