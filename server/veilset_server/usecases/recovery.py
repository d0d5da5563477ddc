"""What a start does before it serves: carry on with everything that a crash left half-way."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from veilset_server.ports import Ledger, VectorStore
from veilset_server.records import ReleaseState, StoredSet
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.rollback import RollbackGuard

log = structlog.get_logger(__name__)


def recover(ledger: Ledger, files: VectorStore, merging: Merging, guard: RollbackGuard) -> None:
    """Finish accepted uploads, bring the anchor up, and drop what was never charged. Charged releases are the delivery
    worker's to deliver. A set whose accepted upload cannot be finished is logged and refuses; the others go on.

    Artefacts without a live release were never visible (or belong to a deleted or retired one), so they go. So do spools
    without an upload under way: all that they hold is in the vector, and what is kept without need may yet be read.
    """
    guard.catch_up({stored.description.name: stored.description.account for stored in all_sets(ledger)})
    completed = merging.complete_all()
    live = {
        (release.set_id, release.sequence)
        for state in (ReleaseState.PENDING, ReleaseState.PUBLISHED)
        for release in ledger.releases_in_state(state)
    }
    orphans = [artefact for artefact in files.artefacts() if artefact not in live]
    for set_id, sequence in orphans:
        files.remove_artefact(set_id, sequence)
    under_way = [(upload.set_id, upload.upload_id) for upload in ledger.all_open_uploads() + ledger.merging_uploads()]
    spools = files.remove_other_spools(under_way)
    log.info("recovered", uploads=completed, artefacts_dropped=len(orphans), spools_dropped=spools)


def all_sets(ledger: Ledger) -> Iterator[StoredSet]:
    """Every set, page by page."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        yield from page
        after = page[-1].description.name
