"""How many releases of a set stay: as many as the option says, up to its largest value, whatever else the ledger holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, OneKey, names

from veilset.core.release.signing import open_manifest
from veilset_server.records import Charge, ReleaseState, StoredRelease
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.releases import charge_release, mark_release
from veilset_server.usecases.delivery import Delivery

KEEP = 1000
"""The largest value of --keep-releases."""


class ForgetfulStore(MemoryStore):
    """Remembers which releases it was to let go."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.expired: list[int] = []

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        assert chunk_count == 1
        self.expired.append(sequence)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service that keeps as many releases as can be, with one delivered."""
    found = Desk(tmp_path, MemoryAnchor(), ForgetfulStore(tmp_path / LEDGER_NAME))
    found.create(budget=9, bits=1 << 12)
    found.upload("one", names(100))
    found.delivery = Delivery(found.ledger, found.artefacts, found.store, keep=KEEP)
    found.publish("first")
    found.delivery.deliver_pending()
    yield found
    found.close()


def add_releases(desk: Desk, first: int, last: int, state: ReleaseState) -> None:
    """Charged for next to nothing, in one transaction, since a thousand take long; with the first one's bits."""
    shown = desk.ledger.get_release("set", 1)
    header = open_manifest(shown.manifest)
    with desk.ledger._file.transaction() as transaction:
        for sequence in range(first, last + 1):
            manifest = OneKey().sign(replace(header, sequence=sequence, generation=sequence))
            release = replace(
                shown, sequence=sequence, request_id=str(sequence), state=ReleaseState.PENDING, manifest=manifest
            )
            spent = 10**9 + sequence - 2
            charge_release(transaction, release, "set", Charge(1, Fraction(0)), spent, 0)
            mark_release(transaction, shown.set_id, sequence, state)


def states(desk: Desk) -> dict[ReleaseState, list[int]]:
    """State → sequences."""
    return {state: desk.ledger.sequences_in_state("set", state) for state in ReleaseState}


def deliver_one(desk: Desk) -> StoredRelease:
    """The next release, published."""
    release = desk.publish("next")
    assert desk.delivery.deliver_pending() == 1
    return release


def test_a_thousand_releases_stay_and_no_more(desk: Desk) -> None:
    """Of 1003 the three oldest go, newest of them first; their artefacts too."""
    add_releases(desk, 2, KEEP + 2, ReleaseState.PUBLISHED)
    newest = deliver_one(desk).sequence
    assert desk.store.expired == [3, 2, 1]
    assert states(desk)[ReleaseState.EXPIRED] == [3, 2, 1]
    assert states(desk)[ReleaseState.PUBLISHED] == list(range(newest, 3, -1))
    assert desk.artefacts.list() == [(1, newest)]


def test_what_never_was_visible_does_not_count(desk: Desk) -> None:
    """A thousand lost releases hide no published one, nor take its place."""
    desk.delivery = Delivery(desk.ledger, desk.artefacts, desk.store, keep=1)
    add_releases(desk, 2, KEEP + 2, ReleaseState.LOST)
    newest = deliver_one(desk).sequence
    assert desk.store.expired == [1]
    assert states(desk)[ReleaseState.PUBLISHED] == [newest]


def test_another_sets_releases_do_not_count(desk: Desk) -> None:
    """By name."""
    assert desk.ledger.sequences_in_state("another", ReleaseState.PUBLISHED) == []
