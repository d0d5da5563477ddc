"""Quotas in the ledger: sets of one owner, open uploads of one principal and in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from storage_examples import description, new_ledger

from veilset.errors import LimitExceeded
from veilset_server.adapters.ledger.sqlite_ledger import SqliteLedger
from veilset_server.principals import EVERYBODY, make_principal
from veilset_server.records import StoredSet, UploadQuota


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
    """Over all sets, by the beginning of their ids; an upload that is there is none more."""
    first, second = add(ledger, "a", "").set_id, add(ledger, "b", "").set_id
    ab, a = make_principal("a.b", ["producer"], ["*"]), make_principal("a", ["producer"], ["*"])

    def opened(set_id: int, upload_id: str, prefix: str, everybody: int = 6) -> None:
        ledger.open_upload(set_id, upload_id, UploadQuota((prefix, f"vector:{prefix}"), 2, everybody))

    opened(first, a.owned("u"), a.owned_prefix)
    opened(second, "vector:" + a.owned("u"), a.owned_prefix)
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 2"):
        opened(first, a.owned("v"), a.owned_prefix)
    opened(first, a.owned("u"), a.owned_prefix)
    opened(first, ab.owned("u"), ab.owned_prefix)
    opened(first, ab.owned("v"), ab.owned_prefix)
    with pytest.raises(LimitExceeded, match="max_open_uploads = 4"):
        opened(second, "b/u", "b/", everybody=4)
    ledger.accept_upload(first, a.owned("u"), 1)
    opened(first, a.owned("v"), a.owned_prefix)
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 4"):
        ledger.open_upload(first, EVERYBODY.owned("w"), UploadQuota(("",), 4, 100))
