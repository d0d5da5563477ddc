"""What a start does before it serves: carry on with everything that a crash left half-way."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from veilset_server.records import ReleaseState, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.rollback import RollbackGuard

log = structlog.get_logger(__name__)


def recover(ledger: SqliteLedger, artefacts: ArtefactFiles, guard: RollbackGuard) -> None:
    """Bring the anchor up, and drop what was never charged. Charged releases are the delivery worker's to deliver.

    Artefacts without a live release were never visible (or belong to a deleted or retired one), so they go.
    """
    guard.catch_up({stored.description.name: stored.description.account for stored in all_sets(ledger)})
    live = {
        (release.set_id, release.sequence)
        for state in (ReleaseState.PENDING, ReleaseState.PUBLISHED)
        for release in ledger.releases_in_state(state)
    }
    orphans = [artefact for artefact in artefacts.list() if artefact not in live]
    for set_id, sequence in orphans:
        artefacts.remove(set_id, sequence)
    log.info("recovered", artefacts_dropped=len(orphans))


def all_sets(ledger: SqliteLedger) -> Iterator[StoredSet]:
    """Every set, page by page."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        yield from page
        after = page[-1].description.name
