"""Pages of releases: all of them, once each, newest first, and never more than a message holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_examples import add_set, charge_of, new_ledger, release_of

from veilset_server.rpc.service import release_page
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

RELEASES = 30


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> SqliteLedger:
    """A set with thirty releases."""
    made = new_ledger(tmp_path_factory.mktemp("ledger"))
    stored = add_set(made)
    for sequence in range(1, RELEASES + 1):
        release = release_of(stored, sequence, f"request {sequence:02d}")
        made.charge_release(release, stored.description.account, charge_of(), (sequence - 1) * charge_of().nano_epsilon)
    return made


def pages(ledger: SqliteLedger, size: int, most_bytes: int) -> list[list[int]]:
    """The sequences of all pages."""
    found: list[list[int]] = []
    below = "0"
    while below:
        releases, below = release_page(ledger, "guests", int(below), size, most_bytes)
        found.append([release.sequence for release in releases])
    return found


@pytest.mark.parametrize("size", [1, 7, 8, 9, 29, 30, 31, 1000])
@pytest.mark.parametrize("held", [1, 3, 1000])
def test_every_release_is_on_one_page(ledger: SqliteLedger, size: int, held: int) -> None:
    """As many a page as were asked for, or as fit into the bytes, and at least one."""
    length = len(release_page(ledger, "guests", 0, 1)[0][0].manifest)
    found = pages(ledger, size, held * length + length // 2)
    assert [sequence for page in found for sequence in page] == list(range(RELEASES, 0, -1))
    assert {len(page) for page in found[:-1]} <= {min(size, held)}


def test_a_manifest_that_is_too_long_comes_alone(ledger: SqliteLedger) -> None:
    """It is told all the same: a client that takes longer messages reads it."""
    assert pages(ledger, 1000, 1) == [[sequence] for sequence in range(RELEASES, 0, -1)]


def test_a_set_without_releases_has_one_empty_page(tmp_path: Path) -> None:
    """And no token."""
    with new_ledger(tmp_path) as ledger:
        add_set(ledger)
        assert release_page(ledger, "guests", 0, 10) == ([], "")
