"""Small uploads that arrive together share one commit of the ledger."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from veilset.errors import Unavailable, VeilsetError
from veilset_server.records import SmallBatch
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.compaction import Compactor

GATHERING_SECONDS = 0.002
"""How long a commit waits for callers who were in the one before, and so are likely to come again."""


@dataclass(slots=True)
class _Waiting:
    """One upload on its way into the ledger; refused unless a commit says otherwise."""

    batch: SmallBatch
    done: bool = False
    set_id: int = 0
    operations: int | None = None
    error: VeilsetError | None = field(default_factory=lambda: Unavailable("upload: not committed; send it again"))


class SmallUploads:
    """Commits small uploads in groups: anyone who finds no commit under way makes the next one, for all who wait. Thread-safe."""

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
