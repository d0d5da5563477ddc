"""Quotas in the ledger: sets of one owner, open uploads of one principal and in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from storage_examples import description, new_ledger

from veilset.errors import LimitExceeded
from veilset_server.principals import EVERYBODY, Principal, make_principal
from veilset_server.records import StoredSet, UploadQuota
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.upload_ids import UploadContent, kept_id, prefixes


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty one."""
    with new_ledger(tmp_path) as made:
        yield made


def add(ledger: SqliteLedger, name: str, owner: str, quota: int | None = 2) -> StoredSet:
    """A set of an owner's."""
    made = replace(description(), name=name, account=name, owner=owner)
    return ledger.create_set(made, 10**9, Fraction(1), 100, quota)


def test_sets_of_one_owner(ledger: SqliteLedger) -> None:
    """Counted by owner, deleted ones not; everybody, where nobody was asked, is one owner."""
    for owner in ("", "a", "b"):
        add(ledger, f"{owner}-1".lstrip("-"), owner)
        add(ledger, f"{owner}-2".lstrip("-"), owner)
        with pytest.raises(LimitExceeded, match="max_sets_per_principal = 2"):
            add(ledger, f"{owner}-3".lstrip("-"), owner)
    assert ledger.get_set("a-1").description.owner == "a"
    ledger.delete_set("a-1")
    add(ledger, "a-3", "a")
    add(ledger, "a-4", "a", quota=None)


def test_open_uploads(ledger: SqliteLedger) -> None:
    """Over all sets, of both contents, by the beginning of their ids; an upload that is there is none more."""
    first, second = add(ledger, "a", "").set_id, add(ledger, "b", "").set_id
    ab, a, vector = (make_principal(name, ["producer"], ["*"]) for name in ("a.b", "a", "vector"))

    def opened(
        set_id: int,
        principal: Principal,
        upload_id: str,
        content: UploadContent = UploadContent.ELEMENTS,
        own: int = 2,
        everybody: int = 8,
    ) -> None:
        ledger.open_upload(
            set_id, kept_id(content, principal, upload_id), UploadQuota(prefixes(principal), own, everybody)
        )

    opened(first, a, "u")
    opened(second, a, "u", UploadContent.VECTOR)
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 2"):
        opened(first, a, "v")
    opened(first, a, "u")
    opened(first, ab, "u")
    opened(first, ab, "v")
    opened(first, vector, "a/u")  # its own, whatever others merge
    opened(first, vector, "a/v")
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 2"):
        opened(first, vector, "a/w")
    with pytest.raises(LimitExceeded, match="max_open_uploads = 6"):
        opened(second, make_principal("b", ["producer"], ["*"]), "u", everybody=6)
    ledger.accept_upload(first, kept_id(UploadContent.ELEMENTS, a, "u"), 1)
    opened(first, a, "v")
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 6"):
        opened(first, EVERYBODY, "w", own=6)
