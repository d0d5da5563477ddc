"""Quotas in the ledger: sets of one owner, open uploads of one principal and in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from storage_examples import description, new_ledger

from veilset.core.params import Operation
from veilset.errors import LimitExceeded
from veilset_server.records import StoredSet, Upload, UploadQuota
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger


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
    """Over all sets, by the beginning of their ids; an upload that is there, or a part of it, is none more."""
    first, second = add(ledger, "a", "").set_id, add(ledger, "b", "").set_id

    def opened(set_id: int, principal: str, upload_id: str, part: int = 0, own: int = 2, everybody: int = 8) -> Upload:
        prefix = f"{principal}/" if principal else ""
        kept_id = f"{principal}/{upload_id}"
        return ledger.open_upload(set_id, kept_id, part, Operation.ADD, UploadQuota(prefix, own, everybody))

    kept = opened(first, "a", "u")
    opened(second, "a", "u", 1)
    opened(second, "a", "u", 2)
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 2"):
        opened(first, "a", "v")
    opened(first, "a", "u")
    opened(first, "a.b", "u")
    opened(first, "a.b", "v")
    with pytest.raises(LimitExceeded, match="max_open_uploads = 4"):
        opened(second, "b", "u", everybody=4)
    ledger.finish_upload(kept, 1, bytes(16))
    opened(first, "a", "v")
    with pytest.raises(LimitExceeded, match="max_open_uploads_per_principal = 4"):
        opened(first, "", "w", own=4)
