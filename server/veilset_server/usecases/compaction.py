"""The thread that folds runs in the background, and deletes the files that nothing refers to any more."""

from __future__ import annotations

import threading

import structlog

from veilset.errors import NotFound, StateCorrupted, VeilsetError
from veilset_server.process import error_places
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs, Stopped

log = structlog.get_logger(__name__)


class Compactor:
    """Folds a set's runs when there are many. refusing: ids of the sets that it found damaged."""

    def __init__(self, ledger: SqliteLedger, runs: Runs) -> None:
        self._ledger = ledger
        self._runs = runs
        self.refusing: set[int] = set()
        self._wanted: dict[int, bool] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)

    def start(self) -> None:
        """Start the thread; it looks at every set once."""
        after = ""
        while page := self._ledger.list_sets(after, 1000):
            for stored in page:
                self.wake(stored.set_id)
            after = page[-1].description.name
        self._thread.start()

    def wake(self, set_id: int, *, whole: bool = False) -> None:
        """Look whether this set is due. whole: fold all of it if anything was removed from it."""
        with self._changed:
            self._wanted[set_id] = whole or self._wanted.get(set_id, False)
            self._changed.notify()

    def make_room(self, set_id: int) -> None:
        """Before a finish: return when the set has room for another run. Raises what `Runs.compact` raises."""
        while self._runs.full(set_id) and self._runs.compact(set_id):
            pass

    def stop(self) -> None:
        """End the thread; a compaction under way is given up, and the old runs stay."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopping)
                if self._stopping:
                    return
                set_id, whole = self._wanted.popitem()
            self._compact(set_id, whole)

    def _compact(self, set_id: int, whole: bool) -> None:
        try:
            try:
                self._runs.compact(set_id, whole=whole, stopping=lambda: self._stopping)
            finally:
                self._runs.discard()
            self.refusing.discard(set_id)
        except (Stopped, NotFound):
            pass
        except VeilsetError as error:  # the old runs stay; the next upload tries again
            file = error.details.get("file", "")
            log.error("not compacted", set_id=set_id, reason=error.reason, file=file)  # noqa: TRY400 - by reason, not by text
            if isinstance(error, StateCorrupted):
                self.refusing.add(set_id)
        except Exception as error:  # noqa: BLE001 - the thread must outlive an error that is a fault of ours
            kind, places = type(error).__name__, error_places(error)
            log.error("compaction failed", set_id=set_id, kind=kind, places=places)  # noqa: TRY400
