"""Partial vectors on their way into the raw vector: interrupted, repeated, beside damage; copied or in place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from storage_examples import MAX_SETS, description, new_files, new_ledger, whole

from veilset.core.encodings.bloom import filter as bloom
from veilset.core.params import FilterParameters
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import StateCorrupted
from veilset_server.principals import EVERYBODY
from veilset_server.records import SetDescription
from veilset_server.state import raw_vectors
from veilset_server.state.idle_file import IdleFile
from veilset_server.usecases.abandoned_uploads import AbandonedUploads
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.upload_ids import UploadContent, kept_id

SHAPE = FilterParameters(8 * 3 * CHUNK_BYTES + 21, 2, seed=5)
CHUNKS = {0: 0x11, 2: 0x22, 3: 0x40}
"""Which chunks a merge sends, and what each of their bytes is; chunk 1 it leaves out."""


class Interrupted(Exception):
    """In the middle of a merge."""


@pytest.fixture(params=[0, 1 << 40], ids=["in place", "in a copy"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder, with vectors merged as long ones are, or as short ones."""
    monkeypatch.setattr(raw_vectors, "PRIVATE_BYTES", request.param)
    return tmp_path


class Place:
    """A set in a state folder, and its ingest."""

    def __init__(self, folder: Path) -> None:
        self.files = new_files(folder)
        self.ledger = new_ledger(folder)
        told = description("s")
        made = SetDescription("s", SHAPE, told.privacy, told.normalization, "s", 0, 1000, shared_seed=False)
        stored = self.ledger.create_set(made, NANO * 100, charge_delta(1e-6), MAX_SETS)
        self.files.create_vector(stored.set_id, SHAPE.vector_bytes)
        self.stored = self.ledger.get_set("s")
        locks = KeyedLocks()
        self.merging = Merging(self.ledger, self.files, locks)
        abandoned = AbandonedUploads(self.ledger, self.files, IdleFile(folder), 1e6)
        self.ingest = Ingest(self.ledger, self.files, locks, self.merging, abandoned)

    def add(self, elements: list[bytes]) -> None:
        """An upload of e-mail addresses."""
        session = self.ingest.open("s", "elements")
        session.add_elements(1, elements)
        self.ingest.finish(session, len(elements), b"")

    def merge(self) -> None:
        """Merge `CHUNKS`."""
        session = self.ingest.open_merge("s", "u", SHAPE, self.stored.description.normalization)
        for index, value in CHUNKS.items():
            session.add_chunk(index, chunk(index, value))
        digest = hashlib.sha256(sent().tobytes()).digest()
        self.ingest.finish(session, SHAPE.vector_bytes, digest)

    def vector(self) -> NDArray[np.uint8]:
        """The raw vector, checked."""
        return np.frombuffer(whole(self.files, self.stored.set_id, SHAPE.vector_bytes), dtype=np.uint8)


def chunk(index: int, value: int) -> bytes:
    """A chunk of one value; the last is shorter."""
    return bytes([value]) * min(CHUNK_BYTES, SHAPE.vector_bytes - index * CHUNK_BYTES - (index == 3)) + b"\0" * (
        index == 3
    )


def sent() -> NDArray[np.uint8]:
    """The vector that `CHUNKS` make."""
    vector = np.zeros(SHAPE.vector_bytes, dtype=np.uint8)
    for index, value in CHUNKS.items():
        piece = np.frombuffer(chunk(index, value), dtype=np.uint8)
        vector[index * CHUNK_BYTES : index * CHUNK_BYTES + len(piece)] = piece
    return vector


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    """With an upload of elements in it."""
    made = Place(folder)
    made.add([b"a@example.com", b"b@example.com", b"c@example.com"])
    yield made
    made.ledger.close()


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the next merge fail behind so many chunks."""
    real, calls = bloom.unite, iter(range(after))

    def failing(*arguments: Any) -> None:
        if next(calls, None) is None:
            raise Interrupted
        real(*arguments)

    monkeypatch.setattr(bloom, "unite", failing)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_merge_is_completed(place: Place, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of it had reached the vector; nothing else of the set is done before."""
    expected = place.vector() | sent()
    with monkeypatch.context() as patch:
        interrupt(patch, after)
        with pytest.raises(Interrupted):
            place.merge()
    assert [upload.upload_id for upload in place.ledger.merging_uploads()] == [
        kept_id(UploadContent.VECTOR, EVERYBODY, "u")
    ]
    place.merging.complete(place.stored)
    assert (place.vector() == expected).all()
    assert place.ledger.merging_uploads() == []
    assert place.ingest.open_merge("s", "u", SHAPE, place.stored.description.normalization).finished


def test_a_merge_is_not_counted_as_elements(place: Place) -> None:
    """What it holds is proved by the ones of the whole vector."""
    before = place.ledger.get_set("s").proven_size
    place.merge()
    assert place.ledger.get_set("s").proven_size == before == 3


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_damaged_chunk_is_told_before_it_is_merged_into(place: Place, folder: Path, index: int) -> None:
    """Or its new checksum would make the damage good."""
    flip(folder / "vectors" / f"{place.stored.set_id}.bits", index * CHUNK_BYTES)
    with pytest.raises(StateCorrupted, match=r"vectors/"):
        place.merge()


def test_a_damaged_chunk_that_the_merge_left_out_is_still_told_by_a_read(place: Place, folder: Path) -> None:
    """Only what changes is summed anew."""
    flip(folder / "vectors" / f"{place.stored.set_id}.bits", CHUNK_BYTES + 17)
    place.merge()
    with pytest.raises(StateCorrupted, match=r"vectors/"):
        place.vector()


def flip(path: Path, offset: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        (value,) = file.read(1)
        file.seek(offset)
        file.write(bytes([value ^ 1]))
