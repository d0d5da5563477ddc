"""Uploads of principals with names and ids chosen to collide: each is its own, none blocks a set, and all are published."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from harness.vectors import expected_vector
from veilset.core.params import Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput
from veilset_server.principals import EVERYBODY, Principal, Role, make_principal
from veilset_server.records import Upload, UploadState
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.element_session import ElementSession
from veilset_server.usecases.upload_ids import UploadContent, kept_id
from veilset_server.usecases.vector_session import VectorSession

PRINCIPALS = [EVERYBODY, *(make_principal(name, [Role.PRODUCER], ["*"]) for name in ("vector", "elements", "alice"))]
IDS = ["u", "/u", "vector/u", "alice/u", "vector/alice/u", "vector//u", "elements/alice/u", "\0u"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """With an empty set."""
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    made.create()
    yield made
    made.close()


def merge(desk: Desk, principal: Principal, upload_id: str, elements: list[bytes]) -> None:
    """Merge a vector of those elements."""
    shape = desk.ledger.get_set("set").description.filter
    vector = expected_vector(shape, elements)
    session = desk.ingest.open_merge("set", upload_id, shape, Normalization.NONE, principal)
    assert not session.finished
    assert session.chunks == 0
    for index in range(-(-len(vector) // CHUNK_BYTES)):
        session.add_chunk(index, vector[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
    desk.ingest.finish(session, len(vector), hashlib.sha256(vector).digest())


def test_every_principal_and_id_has_an_upload_and_a_merge_of_its_own(desk: Desk, tmp_path: Path) -> None:
    """All are new when they are opened, all end up in the vector, and the set can be published."""
    everything: list[bytes] = []
    for number, (principal, upload_id) in enumerate((p, i) for p in PRINCIPALS for i in IDS):
        merged, sent = [f"{number} merged".encode()], [f"{number} sent".encode(), f"{number} more".encode()]
        held = desk.ingest.open("set", upload_id, principal)
        assert not held.finished
        held.add_elements(1, sent)
        merge(desk, principal, upload_id, merged)  # while the upload of elements is open
        assert held.position == (1, 2)
        assert desk.ingest.finish(held, 2, b"") == 2
        everything += merged + sent
    shape = desk.ledger.get_set("set").description.filter
    assert (tmp_path / "vectors" / "1.bits").read_bytes() == expected_vector(shape, everything)
    assert desk.ledger.merging_uploads() == []
    assert desk.publish("r").sequence == 1


def test_what_was_begun_before_tokens_belongs_to_nobody_with_one(desk: Desk) -> None:
    """A start without authentication leaves an upload whose id looks like a principal's: it is not taken for that one's."""
    alice = PRINCIPALS[-1]
    for upload_id in ("alice/x", "elements/alice/x"):
        session = desk.ingest.open("set", upload_id)
        session.add_elements(1, names(3))
        desk.ingest.close(session)
    assert desk.ingest.open("set", "x", alice).position == (0, 0)


@pytest.mark.parametrize("session", [ElementSession, VectorSession])
def test_a_session_refuses_an_upload_of_the_other_content(
    desk: Desk, session: type[ElementSession | VectorSession]
) -> None:
    """Before anything can be accepted, as what is accepted has to be merged."""
    other = UploadContent.VECTOR if session is ElementSession else UploadContent.ELEMENTS
    upload = Upload(1, kept_id(other, EVERYBODY, "u"), UploadState.FINISHED, 0)
    with pytest.raises(InvalidInput) as refused:
        session(desk.ledger.get_set("set"), upload, None)
    assert refused.value.field == "upload_id"
