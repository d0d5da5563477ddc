"""Receiving uploads. Elements wait in the upload's own spool until finish; by one commit of the ledger the spool becomes a run.

So the end of a stream decides nothing, a resumed upload continues where its spool ends, and a publish sees finished uploads only.
How long a finish takes depends on the upload alone: nothing that the set holds is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from veilset.core.elements.hashing import pack_digests
from veilset.core.params import (
    DIGEST_BYTES,
    MAX_PART,
    MAX_SMALL_ELEMENTS,
    HashParameters,
    Normalization,
    Operation,
    check_integer,
)
from veilset.errors import NotFound, OutOfSequence, Unavailable, UploadMismatch, VeilsetError, must_be
from veilset_server.ports import Clock
from veilset_server.principals import EVERYBODY, Principal
from veilset_server.records import (
    SmallBatch,
    Upload,
    UploadPart,
    UploadQuota,
    UploadState,
)
from veilset_server.settings import Limits
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.ledger.uploads import check_repeated, parts_checksum
from veilset_server.state.runs import Runs
from veilset_server.usecases.abandoned_uploads import AbandonedUploads
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.upload_session import UploadSession, hash_elements, read_digests

MAX_UPLOAD_ID = 128
REMEMBERED_US = 30 * 24 * 3600 * 1_000_000
"""How long the id of a finished upload is known, so that a repeated finish is answered and not done again."""

_Key = tuple[int, str, int]

GATHERING_SECONDS = 0.002
"""How long a commit waits for callers who were in the one before, and so are likely to come again."""


class Uploads:
    """Opens and finishes uploads. Thread-safe."""

    def __init__(
        self,
        ledger: SqliteLedger,
        runs: Runs,
        compactor: Compactor,
        guard: RollbackGuard,
        abandoned: AbandonedUploads,
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        self._ledger = ledger
        self._runs = runs
        self._compactor = compactor
        self._rollback = guard
        self._abandoned = abandoned
        self._clock = clock
        self._limits = limits or Limits()
        self._guard = threading.Lock()
        self._sessions: dict[_Key, UploadSession] = {}
        self._small = SmallUploads(ledger, compactor)

    def open(
        self,
        set_name: str,
        upload_id: str,
        operation: Operation = Operation.ADD,
        part: int = 0,
        principal: Principal = EVERYBODY,
    ) -> UploadSession:
        """Open or resume the principal's upload, or a part of it; a stream that held it before loses it.

        Raises NotFound, InvalidInput, FailedPrecondition (opened before with another operation), LimitExceeded (too many are
        open), StateCorrupted where the spool is damaged, and what `finish` raises for one that is finished already.
        """
        kept_id = _kept_id(principal, upload_id)
        check_integer("part", part, 0, MAX_PART)
        quota = UploadQuota(
            _prefix(principal), self._limits.max_open_uploads_per_principal, self._limits.max_open_uploads
        )
        stored = self._ledger.get_set(set_name)
        with self._guard:
            upload = self._ledger.open_upload(stored.set_id, kept_id, part, operation, quota)
            before = self._sessions.pop(_key(upload), None)
            if before is not None:
                before.close()
        is_open = upload.state is UploadState.OPEN
        if upload.state is UploadState.FINISHED and operation is not Operation.ADD:
            self._rollback.record_operations(set_name, self._ledger.operations(set_name))
        session = UploadSession(stored, upload, self._runs.open_spool(upload) if is_open else None)
        try:
            with self._guard:  # again, as another stream may have finished it meanwhile, or housekeeping dropped it
                current = session.finished or self._is_current(upload)
                if current and not session.finished:
                    self._sessions[_key(upload)] = session
        except BaseException:
            session.close()
            raise
        if not current:
            session.close()
            return self.open(set_name, upload_id, operation, part, principal)
        return session

    def _is_current(self, upload: Upload) -> bool:
        """Whether the upload is open as it was. If not, an empty spool that was made for it goes."""
        try:
            found = self._ledger.open_upload(upload.set_id, upload.upload_id, upload.part, upload.operation)
        except NotFound:
            self._runs.remove_spool(upload)
            raise
        if found != upload and found.state is UploadState.OPEN:  # else its spool is content
            self._runs.remove_spool(upload)
        return found == upload

    def close(self, session: UploadSession) -> None:
        """The stream ended, for any reason; what is held stays for a resume."""
        with self._guard:
            if self._holds(session):
                del self._sessions[_key(session.upload)]
        session.close()

    def _holds(self, session: UploadSession) -> bool:
        return self._sessions.get(_key(session.upload)) is session

    def finish(self, session: UploadSession, count: int, checksum: bytes, parts: Sequence[UploadPart] = ()) -> int:
        """Make the upload part of the set, durably, or seal the part; returns the number of its elements.

        parts: all parts of the upload, which are committed together.
        Raises UploadMismatch (an upload or part that differs from what finish says is discarded: a retry starts over; parts
        that differ from the list stay), AlreadyExists (it was finished with other elements), InvalidInput, and Unavailable or
        StorageFull where the anchor cannot remember a removal: then repeat the call.
        """
        upload = session.upload
        if session.finished:
            if not (upload.part and upload.state is UploadState.FINISHED):  # of such a part nothing is known any more
                given = parts_checksum(parts) if parts else checksum
                check_repeated((upload.count, upload.checksum), count, given)
            return count
        try:
            held = session.check_finish(count, checksum, parts)
        except UploadMismatch:
            if not parts:
                self._discard(session)
            raise
        if not upload.part:
            self._compactor.make_room(upload.set_id)
        with self._guard:  # a stream that took the upload over may have added to it: then this finish is void
            if not self._holds(session):
                raise OutOfSequence("upload: taken over by another stream", field="upload_id")
            operations = None
            if upload.part:
                self._ledger.seal_part(upload, count, held)
            else:
                operations = self._ledger.finish_upload(upload, count, held, parts)
            del self._sessions[_key(upload)]
        session.close()
        self._compactor.wake(upload.set_id)
        if operations is not None:
            self._rollback.record_operations(session.stored.description.name, operations)
        return count

    def _discard(self, session: UploadSession) -> None:
        with self._guard:
            if self._holds(session):
                del self._sessions[_key(session.upload)]
                session.close()
                self._runs.remove_spool(session.upload)

    def add_elements(
        self,
        set_name: str,
        upload_id: str,
        operation: Operation,
        elements: Sequence[bytes],
        principal: Principal = EVERYBODY,
    ) -> int:
        """A whole small upload of raw elements in one call; returns their number. Raises as `add_digests`."""
        _check_small("elements", len(elements))
        stored = self._ledger.get_set(set_name)
        packed = pack_digests(hash_elements(stored, elements))
        made_with = stored.description.hashing, stored.description.normalization
        return self._add(SmallBatch(set_name, _kept_id(principal, upload_id), operation, packed, made_with))

    def add_digests(
        self,
        set_name: str,
        upload_id: str,
        operation: Operation,
        packed: bytes,
        principal: Principal = EVERYBODY,
        made_with: tuple[HashParameters, Normalization] | None = None,
    ) -> int:
        """A whole small upload of packed digests in one call; returns their number.

        The same upload id may be sent again: it is answered and not done again. made_with: how the digests were made, if the
        producer says so. Raises InvalidInput, NotFound, AlreadyExists (the id was used for others), FailedPrecondition (the id is
        that of an open stream, or of another operation, or the set hashes otherwise), and what `finish` raises.
        """
        count = len(read_digests(packed))
        _check_small("digests", count)
        return self._add(SmallBatch(set_name, _kept_id(principal, upload_id), operation, packed, made_with))

    def _add(self, batch: SmallBatch) -> int:
        operations = self._small.add(batch)
        if operations is not None:
            self._rollback.record_operations(batch.set_name, operations)
        return len(batch.digests) // DIGEST_BYTES

    def housekeeping(self) -> None:
        """From time to time: drop open uploads that were neither opened nor added to for long, and forget old ids."""
        self._ledger.forget_finished(self._clock.now_us() - REMEMBERED_US)
        self.drop_abandoned()

    def drop_abandoned(self) -> int:
        """Drop open uploads that were neither opened nor added to for long; returns how many."""
        with self._guard:  # none is opened meanwhile
            return self._abandoned.drop()


def _check_small(field: str, count: int) -> None:
    if count > MAX_SMALL_ELEMENTS:
        raise must_be(field, f"at most {MAX_SMALL_ELEMENTS} in one call; send more as a stream", count)


def _key(upload: Upload) -> _Key:
    return upload.set_id, upload.upload_id, upload.part


def _kept_id(principal: Principal, given_id: str) -> str:
    """The id in the ledger of what the principal calls ``given_id``: a principal's name holds no slash, so no two share one."""
    if not 1 <= len(given_id) <= MAX_UPLOAD_ID:
        raise must_be("upload_id", f"1 to {MAX_UPLOAD_ID} characters", len(given_id))
    return f"{principal.name}/{given_id}"


def _prefix(principal: Principal) -> str:
    """What the ids of the principal's uploads begin with; "" where authentication is off, as all uploads are everybody's."""
    return f"{principal.name}/" if principal.name else ""


@dataclass(slots=True)
class _Waiting:
    """One upload on its way into the ledger; refused unless a commit says otherwise."""

    batch: SmallBatch
    done: bool = False
    set_id: int = 0
    operations: int | None = None
    error: VeilsetError | None = field(default_factory=lambda: Unavailable("upload: not committed; send it again"))


class SmallUploads:
    """Commits small uploads in groups: a caller that finds no commit under way makes the next one, for all that wait.

    Thread-safe."""

    def __init__(self, ledger: SqliteLedger, compactor: Compactor) -> None:
        self._ledger = ledger
        self._compactor = compactor
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._busy = False
        self._before = 1

    def add(self, batch: SmallBatch) -> int | None:
        """Return when the upload is committed: the set's operations if this was one that the anchor has to know.

        Raises what `SqliteLedger.add_batches` gives for it, StorageFull, Unavailable.
        """
        waiting = _Waiting(batch)
        with self._changed:
            self._queue.append(waiting)
            self._changed.wait_for(lambda: waiting.done or not self._busy)
            leads = not waiting.done
            self._busy = self._busy or leads
        if leads:
            self._lead()
        if waiting.error is not None:
            raise waiting.error
        return waiting.operations

    def _lead(self) -> None:
        if self._before > 1:
            time.sleep(GATHERING_SECONDS)
        with self._changed:
            group, self._queue = self._queue, []
        try:
            self._commit(group)
        finally:
            with self._changed:
                for waiting in group:
                    waiting.done = True
                self._before, self._busy = len(group), False
                self._changed.notify_all()

    def _commit(self, group: list[_Waiting]) -> None:
        try:
            results = self._ledger.add_batches([waiting.batch for waiting in group])
        except VeilsetError as error:
            for waiting in group:
                waiting.error = error
            return
        for waiting, result in zip(group, results, strict=True):
            if isinstance(result, VeilsetError):
                waiting.error = result
            else:
                waiting.error, (waiting.set_id, waiting.operations) = None, result
        for set_id in {waiting.set_id for waiting in group if waiting.error is None}:
            self._compactor.wake(set_id)
            with suppress(VeilsetError):  # these are committed; what fails is logged by the compactor
                self._compactor.make_room(set_id)
