"""Opening the state folder as a whole: folder, ledger and files that belong together, or a refusal that names what does
not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from veilset.errors import NotFound, StateCorrupted
from veilset_server.ports import Clock
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.state_folder import StateFolder
from veilset_server.state.vector_files import VectorFiles

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedState:
    """The open parts; valid until `open_state`'s block ends. refusing: ids of the sets whose raw vector was found damaged."""

    folder: StateFolder
    ledger: SqliteLedger
    files: VectorFiles
    refusing: frozenset[int]


@contextmanager
def open_state(path: Path, clock: Clock) -> Iterator[OpenedState]:
    """Make or open the state folder at ``path`` and hold it. Raises FailedPrecondition, StateCorrupted, StorageFull."""
    with StateFolder(path) as folder:
        if not folder.ready:  # never completed: nothing in it was ever used, so a half-made ledger may go
            for leftover in (folder.ledger_path, folder.ledger_path.with_name(folder.ledger_path.name + "-journal")):
                leftover.unlink(missing_ok=True)
            SqliteLedger.create(folder.ledger_path, folder.folder_id, clock).close()
            folder.mark_ready()
        with SqliteLedger(folder.ledger_path, folder.folder_id, clock) as ledger:
            files = VectorFiles(folder.path)
            refusing = _match_vectors(ledger, files)
            yield OpenedState(folder, ledger, files, frozenset(refusing))


def _match_vectors(ledger: SqliteLedger, files: VectorFiles) -> set[int]:
    """Carry through what a crash left between ledger and files. A vector of a set that the ledger never heard of means that
    the ledger is not of this folder, or older: that is refused. One that is damaged is its own set's trouble only: the log
    names it, and whatever needs it will refuse; the ids of such sets are returned."""
    known = ledger.highest_set_id()
    for set_id in files.vectors():
        if set_id > known:
            raise StateCorrupted(
                f"vectors/{set_id}.bits: of a set that the ledger does not know; is ledger.db an older copy?",
                file=f"vectors/{set_id}.bits",
            )
        try:
            ledger.get_set_by_id(set_id)
        except NotFound:
            files.remove_set(set_id)
    merging = {upload.set_id for upload in ledger.merging_uploads()}
    refusing: set[int] = set()
    after = ""
    while page := ledger.list_sets(after, 1000):
        for stored in page:
            length = stored.description.filter.vector_bytes
            used = stored.set_id in merging or ledger.finished_uploads(stored.set_id)
            record = ledger.vector_record(stored.set_id)
            try:
                if used:
                    files.check_vector(stored.set_id, length, record)
                else:
                    files.create_vector(stored.set_id, length)
                if record.root is None:
                    ledger.adopt_vector_root(stored.set_id, files.vector_root(stored.set_id, length))
            except StateCorrupted as error:
                name, file = stored.description.name, error.details["file"]
                log.error("set refuses", set=name, reason=error.reason, file=file)  # noqa: TRY400 - by reason, not by text
                refusing.add(stored.set_id)
        after = page[-1].description.name
    return refusing
