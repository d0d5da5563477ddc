"""Uploads of principals with names and ids chosen to collide: each is its own, none blocks a set, and all are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from veilset.core.elements.hashing import digests
from veilset_server.principals import EVERYBODY, Role, make_principal
from veilset_server.state.ledger.file import LEDGER_NAME

PRINCIPALS = [EVERYBODY, *(make_principal(name, [Role.PRODUCER], ["*"]) for name in ("vector", "elements", "alice"))]
IDS = ["u", "/u", "vector/u", "alice/u", "vector/alice/u", "vector//u", "elements/alice/u", "\0u"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """With an empty set."""
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    made.create()
    yield made
    made.close()


def test_every_principal_and_id_has_an_upload_of_its_own(desk: Desk) -> None:
    """All are new when they are opened, all end up in the vector, and the set can be published."""
    everything: list[bytes] = []
    for number, (principal, upload_id) in enumerate((p, i) for p in PRINCIPALS for i in IDS):
        sent = [f"{number} sent".encode(), f"{number} more".encode()]
        held = desk.uploads.open("set", upload_id, principal=principal)
        assert not held.finished
        held.add_elements(1, sent)
        assert held.position == (1, 2)
        assert desk.uploads.finish(held, 2, b"") == 2
        everything += sent
    seed = desk.ledger.get_set("set").description.hashing.seed
    assert desk.held() == sorted(digests(everything, seed=seed).tolist())
    assert desk.publish("r").sequence == 1


def test_what_was_begun_before_tokens_belongs_to_nobody_with_one(desk: Desk) -> None:
    """A start without authentication leaves an upload whose id looks like a principal's: it is not taken for that one's."""
    alice = PRINCIPALS[-1]
    for upload_id in ("alice/x", "elements/alice/x"):
        session = desk.uploads.open("set", upload_id)
        session.add_elements(1, names(3))
        desk.uploads.close(session)
    assert desk.uploads.open("set", "x", principal=alice).position == (0, 0)
