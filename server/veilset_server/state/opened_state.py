"""Opening the state folder as a whole: folder, ledger and files that belong together, or a refusal that names what does
not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from veilset.errors import StateCorrupted
from veilset_server.ports import Clock
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.reserve import SpaceReserve
from veilset_server.state.runs import Runs
from veilset_server.state.state_folder import StateFolder

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedState:
    """The open parts; valid until `open_state`'s block ends. refusing: ids of the sets of which a run was found damaged."""

    folder: StateFolder
    ledger: SqliteLedger
    runs: Runs
    artefacts: ArtefactFiles
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
        reserve = SpaceReserve(folder.path)
        with SqliteLedger(folder.ledger_path, folder.folder_id, clock, reserve) as ledger:
            runs = Runs(folder.path, ledger)
            runs.discard()
            aside = runs.set_unknown_aside()
            if aside:
                log.warning(
                    "runs of another state of the folder are set aside; is ledger.db an older copy?", files=aside
                )
            artefacts = ArtefactFiles(folder.path / "artefacts")
            artefacts.remove_half_made()
            yield OpenedState(folder, ledger, runs, artefacts, frozenset(_damaged(ledger, runs)))


def _damaged(ledger: SqliteLedger, runs: Runs) -> Iterator[int]:
    """Ids of the sets of which a run is missing or cut. That is their own trouble: the log names the file, and a publish of them
    is refused."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        for stored in page:
            try:
                runs.check(stored.set_id)
            except StateCorrupted as error:
                name, file = stored.description.name, error.details["file"]
                log.error("set refuses", set=name, reason=error.reason, file=file)  # noqa: TRY400 - by reason, not by text
                yield stored.set_id
        after = page[-1].description.name
