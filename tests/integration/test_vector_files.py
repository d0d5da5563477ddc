"""Raw vectors and release artefacts as files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import StoppedClock, add_set, digests_of, new_files, new_ledger

from veilset.errors import NotFound, StateCorrupted
from veilset_server.abandoned_uploads import drop_abandoned_uploads
from veilset_server.adapters.artefact_files import HEAD_BYTES
from veilset_server.adapters.vector_files import VectorFiles
from veilset_server.ports import VectorStore
from veilset_server.records import UploadState


@pytest.fixture
def files(tmp_path: Path) -> VectorFiles:
    """The files of an empty state folder."""
    made = new_files(tmp_path)
    port: VectorStore = made  # checked by mypy
    assert port is made
    return made


# Raw vectors


def test_a_new_vector_is_zero_and_allocated(files: VectorFiles, tmp_path: Path) -> None:
    """All its blocks are there, so that a later write through the map needs none."""
    files.create_vector(7, 100_000)
    status = (tmp_path / "vectors" / "7.bits").stat()
    assert status.st_size == 100_000
    assert status.st_blocks * 512 >= 100_000
    with files.open_vector(7, 100_000) as vector:
        assert vector.shape == (100_000,)
        assert vector.dtype == np.uint8
        assert not vector.any()


def test_what_is_set_in_the_map_stays(files: VectorFiles, tmp_path: Path) -> None:
    """Through sync, reopening, and a repeated create; a view of the map can be synced too."""
    files.create_vector(7, 5000)
    with files.open_vector(7, 5000) as vector:
        vector[1234] |= 0x81
        files.sync_vector(vector)
        files.sync_vector(vector[1000:2000])
        kept = vector[1200:1300]
    files.create_vector(7, 5000)
    with files.open_vector(7, 5000) as vector:
        assert vector[1234] == 0x81
        assert np.count_nonzero(vector) == 1
    assert kept[34] == 0x81  # an array that outlives the block still has its map
    assert VectorFiles(tmp_path).vectors() == [7]


def test_only_a_mapped_vector_can_be_synced(files: VectorFiles) -> None:
    """A copy would be 'synced' without any effect on the disk."""
    files.create_vector(7, 64)
    with files.open_vector(7, 64) as vector, pytest.raises(TypeError):
        files.sync_vector(vector.copy())


@pytest.mark.parametrize("length", [0, 1, 4095, 4097, 8192])
def test_a_vector_of_another_length_is_refused(files: VectorFiles, tmp_path: Path, length: int) -> None:
    """Neither mapped, stretched nor cut; create does not repair it either."""
    files.create_vector(7, 4096)
    os.truncate(tmp_path / "vectors" / "7.bits", length)
    for use in (lambda: files.open_vector(7, 4096).__enter__(), lambda: files.create_vector(7, 4096)):
        with pytest.raises(StateCorrupted, match=r"vectors/7\.bits"):
            use()
    assert (tmp_path / "vectors" / "7.bits").stat().st_size == length


def test_a_missing_vector_and_one_behind_a_link_are_refused(files: VectorFiles, tmp_path: Path) -> None:
    """A link could lead a write out of the folder."""
    (tmp_path / "outside").write_bytes(bytes(64))
    (tmp_path / "vectors" / "8.bits").symlink_to(tmp_path / "outside")
    for set_id in (7, 8):
        with pytest.raises(StateCorrupted, match=f"vectors/{set_id}"), files.open_vector(set_id, 64):
            pass


def test_removing_a_set_leaves_the_others(files: VectorFiles, tmp_path: Path) -> None:
    """Vector and spools go, also of an id that is another's prefix; artefacts stay; twice is no error."""
    for set_id in (1, 11):
        files.create_vector(set_id, 64)
        files.open_spool(set_id, "u").close()
        files.write_artefact(set_id, 1, iter([b"x"]), 1)
    for _ in range(2):
        files.remove_set(1)
    assert files.vectors() == [11]
    assert [path.name.split("-")[0] for path in (tmp_path / "spools").iterdir()] == ["11"]
    assert files.artefacts() == [(1, 1), (11, 1)]


# Artefacts


def test_an_artefact_is_read_back_by_chunks(files: VectorFiles) -> None:
    """Whatever chunks it was written in; all but the last of the length asked for."""
    bits = bytes(range(256)) * 10
    files.write_artefact(3, 9, iter([bits[:1000], bits[1000:1001], b"", bits[1001:]]), len(bits))
    for chunk_bytes in (1, 1000, 2560, 4096):
        chunks = list(files.read_artefact(3, 9, chunk_bytes))
        assert b"".join(chunks) == bits
        assert {len(chunk) for chunk in chunks[:-1]} <= {chunk_bytes}
    assert files.artefacts() == [(3, 9)]
    for _ in range(2):
        files.remove_artefact(3, 9)
    assert files.artefacts() == []


@pytest.mark.parametrize("length", [4, 6])
def test_an_artefact_of_another_length_than_declared_does_not_appear(
    files: VectorFiles, tmp_path: Path, length: int
) -> None:
    """Nor does one whose chunks fail on the way; nothing is left behind, and an older one stays."""

    def failing() -> Iterator[bytes]:
        yield b"ab"
        raise ZeroDivisionError

    files.write_artefact(3, 9, iter([b"older"]), 5)
    with pytest.raises(ValueError, match="artefact"):
        files.write_artefact(3, 9, iter([b"ab", b"cde"]), length)
    with pytest.raises(ZeroDivisionError):
        files.write_artefact(3, 9, failing(), 5)
    assert b"".join(files.read_artefact(3, 9, 8)) == b"older"
    assert [path.name for path in (tmp_path / "artefacts").iterdir()] == ["3-9.noisy"]


def test_an_artefact_that_was_never_charged_is_replaced(files: VectorFiles) -> None:
    """The publish before it failed at its charge."""
    files.write_artefact(3, 9, iter([b"first"]), 5)
    files.write_artefact(3, 9, iter([b"second"]), 6)
    assert b"".join(files.read_artefact(3, 9, 8)) == b"second"


@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 1 << 20), kind=st.sampled_from(["flip", "cut", "grow", "remove", "swap"]))
def test_a_damaged_artefact_is_refused_at_once(files: VectorFiles, tmp_path: Path, place: int, kind: str) -> None:
    """By its head and length, before the first chunk; the bits themselves are the signed manifest's to check."""
    files.write_artefact(3, 9, iter([b"noise"]), 5)
    files.write_artefact(3, 8, iter([b"other"]), 5)
    path = tmp_path / "artefacts" / "3-9.noisy"
    sound = path.read_bytes()
    match kind:
        case "flip":
            damaged = bytearray(sound)
            damaged[place // 8 % HEAD_BYTES] ^= 1 << place % 8
            path.write_bytes(damaged)
        case "cut":
            path.write_bytes(sound[: place % len(sound)])
        case "grow":
            path.write_bytes(sound + bytes(1 + place % 5000))
        case "remove":
            path.unlink()
        case "swap":
            path.write_bytes((tmp_path / "artefacts" / "3-8.noisy").read_bytes())
    with pytest.raises(StateCorrupted, match=r"artefacts/3-9\.noisy"):
        files.read_artefact(3, 9, 4)


def test_an_artefact_that_shrinks_while_it_is_read_is_refused(files: VectorFiles, tmp_path: Path) -> None:
    """Rather than passing on a short last chunk."""
    files.write_artefact(3, 9, iter([bytes(100)]), 100)
    chunks = files.read_artefact(3, 9, 60)
    assert next(chunks) == bytes(60)
    os.truncate(tmp_path / "artefacts" / "3-9.noisy", HEAD_BYTES + 70)
    with pytest.raises(StateCorrupted, match=r"artefacts/3-9\.noisy"):
        next(chunks)


# Abandoned uploads


def test_abandoned_uploads_are_dropped_whole(tmp_path: Path) -> None:
    """Open ones that nobody opened or appended to since; younger, resumed and accepted ones stay."""
    files = new_files(tmp_path)
    with new_ledger(tmp_path) as ledger:
        set_id = add_set(ledger).set_id
        cutoff_us = StoppedClock().now_us() + 1
        spools = {}
        for upload_id in ("abandoned", "no spool yet", "resumed", "accepted", "held by a hung stream"):
            ledger.open_upload(set_id, upload_id)
            if upload_id != "no spool yet":
                spools[upload_id] = files.open_spool(set_id, upload_id)
                spools[upload_id].append(1, digests_of(1))
        ledger.accept_upload(set_id, "accepted", 5)
        for path in (tmp_path / "spools").iterdir():
            os.utime(path, (1, 1))
        files.open_spool(set_id, "resumed").close()
        assert drop_abandoned_uploads(ledger, files, cutoff_us - 1) == 0  # opened later than that
        assert drop_abandoned_uploads(ledger, files, cutoff_us) == 3
        assert ledger.open_uploads(set_id) == 1
        assert ledger.open_upload(set_id, "accepted").state is UploadState.MERGING
        assert len(list((tmp_path / "spools").iterdir())) == 2
        for upload_id in ("abandoned", "held by a hung stream"):
            with pytest.raises(NotFound):
                spools[upload_id].append(2, digests_of(2))
            with pytest.raises(NotFound):
                spools[upload_id].sync()
        again = files.open_spool(set_id, "abandoned")
        assert (again.sequence, again.elements) == (0, 0)
        for spool in (again, *spools.values()):
            spool.close()
