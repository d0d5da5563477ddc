"""What a start does before it serves: carry on with everything that a crash left half-way."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from veilset_server.merging import Merging
from veilset_server.ports import Ledger, VectorStore
from veilset_server.records import ReleaseState, StoredSet
from veilset_server.rollback import RollbackGuard

log = structlog.get_logger(__name__)


def recover(ledger: Ledger, files: VectorStore, merging: Merging, guard: RollbackGuard) -> None:
    """Finish accepted uploads, bring the anchor up, and drop what was never charged. Charged releases are the delivery
    worker's to deliver. A set whose accepted upload cannot be finished is logged and refuses; the others go on.

    Artefacts without a live release were never visible (or belong to a deleted or retired one), so they go.
    """
    guard.open_anchor()
    completed = merging.complete_all()
    for stored in all_sets(ledger):
        description = stored.description
        guard.catch_up(description.name, ledger.get_account(description.account))
    live = {
        (release.set_id, release.sequence)
        for state in (ReleaseState.PENDING, ReleaseState.PUBLISHED)
        for release in ledger.releases_in_state(state)
    }
    orphans = [artefact for artefact in files.artefacts() if artefact not in live]
    for set_id, sequence in orphans:
        files.remove_artefact(set_id, sequence)
    log.info("recovered", uploads=completed, artefacts_dropped=len(orphans))


def all_sets(ledger: Ledger) -> Iterator[StoredSet]:
    """Every set, page by page."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        yield from page
        after = page[-1].description.name
