"""Spools of partial vectors: an acknowledged chunk is there after any cut, or its loss is told; kinds are never mixed up."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import digests_of, new_files

from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import NotFound, OutOfSequence, StateCorrupted
from veilset_server.ports import VectorSpool
from veilset_server.state.vector_files import VectorFiles

EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PLACES = st.integers(0, 1 << 40)
PIECES = [(0, b"\x01" * 40), (2, b"\xff"), (3, b"end of the vector")]


@pytest.fixture
def files(tmp_path: Path) -> VectorFiles:
    """The files of an empty state folder."""
    return new_files(tmp_path)


def chunk(bits: bytes) -> bytes:
    """A whole chunk that starts so."""
    return bits + bytes(CHUNK_BYTES - len(bits))


def read(spool: VectorSpool) -> list[tuple[int, bytes]]:
    """All that it holds."""
    return [(start, piece.tobytes()) for start, piece in spool.read()]


def only_spool(folder: Path) -> Path:
    """The one spool's file."""
    (path,) = (folder / "spools").iterdir()
    return path


def test_chunks_come_back_with_their_places(files: VectorFiles) -> None:
    """From the open spool and from the file; the checksum counts what was left out as zeros."""
    spool = files.open_vector_spool(1, "u")
    assert (spool.chunks, read(spool)) == (0, [])
    for index, bits in ((0, chunk(b"a")), (3, chunk(b"b")), (5, b"tail of 19 bytes...")):
        spool.append(index, bits)
        assert spool.chunks == index + 1
    expected = [(0, chunk(b"a")), (3 * CHUNK_BYTES, chunk(b"b")), (5 * CHUNK_BYTES, b"tail of 19 bytes...")]
    assert read(spool) == expected
    spool.sync()
    spool.close()
    vector = chunk(b"a") + bytes(2 * CHUNK_BYTES) + chunk(b"b") + bytes(CHUNK_BYTES) + b"tail of 19 bytes..."
    again = files.open_vector_spool(1, "u")
    assert (again.chunks, list(again.indexes), read(again)) == (6, [0, 3, 5], expected)
    assert again.sha256(len(vector)) == hashlib.sha256(vector).digest()
    again.close()
    accepted = files.open_vector_spool(1, "u", accepted=True)
    assert (accepted.chunks, read(accepted)) == (6, expected)
    with pytest.raises(ValueError, match="accepted"):
        accepted.sha256(len(vector))
    accepted.close()


@pytest.mark.parametrize("length", [1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_a_spool_without_chunks_is_a_vector_of_zeros(files: VectorFiles, length: int) -> None:
    """Of any length."""
    spool = files.open_vector_spool(1, "u")
    assert spool.sha256(length) == hashlib.sha256(bytes(length)).digest()
    spool.close()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_chunk_below_the_last_is_not_taken(files: VectorFiles, index: int) -> None:
    """The session ignores replays; here one would be merged twice."""
    spool = files.open_vector_spool(1, "u")
    spool.append(2, b"held")
    with pytest.raises(OutOfSequence):
        spool.append(index, b"again")
    assert read(spool) == [(2 * CHUNK_BYTES, b"held")]
    spool.close()


def test_a_stream_that_was_taken_over_or_dropped_cannot_add(files: VectorFiles) -> None:
    """The first of two to append goes on; behind a removal nobody does."""
    old, new = files.open_vector_spool(1, "u"), files.open_vector_spool(1, "u")
    new.append(0, b"new")
    with pytest.raises(OutOfSequence):
        old.append(0, b"old")
    with pytest.raises(OutOfSequence):
        old.sync()
    files.remove_spool(1, "u")
    with pytest.raises(NotFound):
        new.append(1, b"more")
    old.close()
    new.close()


@pytest.mark.parametrize("first", ["vector", "elements"])
def test_a_spool_of_the_other_kind_is_refused(files: VectorFiles, tmp_path: Path, first: str) -> None:
    """By name, and it stays as it is: its digests are no chunks."""
    if first == "vector":
        vector = files.open_vector_spool(1, "u")
        vector.append(0, bytes(64))
        vector.close()
    else:
        spool = files.open_spool(1, "u")
        spool.append(1, digests_of(1))
        spool.close()
    before = only_spool(tmp_path).read_bytes()
    with pytest.raises(StateCorrupted, match=only_spool(tmp_path).name):
        files.open_spool(1, "u") if first == "vector" else files.open_vector_spool(1, "u")
    assert only_spool(tmp_path).read_bytes() == before


def test_the_spool_of_an_accepted_merge_is_never_made_anew(files: VectorFiles) -> None:
    """An empty one in its place would lose what is acknowledged."""
    with pytest.raises(StateCorrupted, match="missing"):
        files.open_vector_spool(1, "u", accepted=True)


@EXAMPLES
@given(number=st.integers(1, len(PIECES)), torn=PLACES)
def test_a_torn_last_write_is_cut_off(files: VectorFiles, tmp_path: Path, number: int, torn: int) -> None:
    """A killed process had written part of a chunk: it was not acknowledged."""
    spool = files.open_vector_spool(1, "u")
    for index, bits in PIECES[: number - 1]:
        spool.append(index, bits)
    path = only_spool(tmp_path)
    before = path.read_bytes()
    spool.append(*PIECES[number - 1])
    spool.close()
    frame = path.read_bytes()[len(before) :]
    part = frame[: torn % (len(frame) + 1)]
    path.write_bytes(before + part)
    again = files.open_vector_spool(1, "u")
    held = PIECES[: number if part == frame else number - 1]
    assert read(again) == [(index * CHUNK_BYTES, bits) for index, bits in held]
    again.append(9, b"goes on")
    again.close()
    files.remove_spool(1, "u")


@EXAMPLES
@given(place=PLACES, cut=st.booleans())
def test_damage_to_what_was_acknowledged_is_told(files: VectorFiles, tmp_path: Path, place: int, cut: bool) -> None:
    """A flipped bit anywhere, any cut: refused by name, never merged."""
    spool = files.open_vector_spool(1, "u")
    for index, bits in PIECES:
        spool.append(index, bits)
    spool.close()
    path = only_spool(tmp_path)
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[place % len(sound)] ^= 1 << (place // len(sound)) % 8
    path.write_bytes(sound[: place % len(sound)] if cut else damaged)
    with pytest.raises(StateCorrupted, match=path.name):
        files.open_vector_spool(1, "u")
    files.remove_spool(1, "u")


def test_pieces_are_read_as_bytes(files: VectorFiles) -> None:
    """Shape (length,), dtype uint8, whatever the padding to whole units."""
    spool = files.open_vector_spool(1, "u")
    spool.append(0, b"seventeen bytes!!")
    ((start, piece),) = spool.read()
    assert (start, piece.shape, str(piece.dtype)) == (0, (17,), "uint8")
    spool.close()
