"""Raw vectors as files: made, changed by merges, read back checked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from storage_examples import UNRECORDED, changing, new_files, whole

from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.params import FilterParameters
from veilset.errors import StateCorrupted
from veilset_server.ports import VectorStore
from veilset_server.state import raw_vectors
from veilset_server.state.raw_vectors import RawVectors
from veilset_server.state.vector_files import VectorFiles

LENGTH = (2 << 20) + 77  # three chunks


@pytest.fixture
def files(tmp_path: Path) -> VectorFiles:
    """The files of an empty state folder, and a vector of zeros with id 7."""
    made = new_files(tmp_path)
    port: VectorStore = made  # checked by mypy
    assert port is made
    made.create_vector(7, LENGTH)
    return made


def test_a_new_vector_is_zero_and_allocated(files: VectorFiles, tmp_path: Path) -> None:
    """All its blocks are there, so that a later write through the map needs none."""
    status = (tmp_path / "vectors" / "7.bits").stat()
    assert status.st_size == LENGTH
    assert status.st_blocks * 512 >= LENGTH
    with changing(files, 7, LENGTH) as vector:
        assert vector.shape == (LENGTH,)
        assert vector.dtype == np.uint8
        assert not vector.any()
    assert [len(chunk) for chunk in files.read_vector(7, LENGTH, UNRECORDED)] == [1 << 20, 1 << 20, 77]
    assert not any(whole(files, 7, LENGTH))


def test_what_is_set_in_the_map_stays(files: VectorFiles, tmp_path: Path) -> None:
    """Through merges, reopening, and a repeated create; an array that outlives the block still has its map."""
    with changing(files, 7, LENGTH) as vector:
        vector[1234] |= 0x81
        vector[-1] |= 0x01
        kept = vector[1200:1300]
    files.create_vector(7, LENGTH)
    with changing(files, 7, LENGTH) as vector:
        vector[2_000_000] |= 0x10
    expected = bytearray(LENGTH)
    expected[1234], expected[-1], expected[2_000_000] = 0x81, 0x01, 0x10
    assert whole(VectorFiles(tmp_path), 7, LENGTH) == expected
    assert kept[34] == 0x81
    assert files.vectors() == [7]


def test_chunks_that_are_read_are_copies(files: VectorFiles) -> None:
    """What was checked is what is published, whatever happens to the file meanwhile."""
    first = next(files.read_vector(7, LENGTH, UNRECORDED))
    with changing(files, 7, LENGTH) as vector:
        vector[0] = 0xFF
    assert not first.any()


@pytest.mark.parametrize("private_bytes", [raw_vectors.PRIVATE_BYTES, 0], ids=["on a copy", "in place"])
@pytest.mark.parametrize("what", ["elements", "a vector"])
def test_a_merge_writes_as_much_for_members_as_for_strangers(
    what: str, private_bytes: int, files: VectorFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer times its own finish: so as many pages are dirty before they are synced, whether a bit was set before or not."""
    shape = FilterParameters(8 * LENGTH, 3)
    member, stranger = digests([b"member"]), digests([b"stranger"])
    dirty: list[int] = []
    sync = raw_vectors.sync_vector

    def syncing(vector: NDArray[np.uint8]) -> None:
        dirty.append(dirty_kib(tmp_path / "vectors" / "7.bits"))
        sync(vector)

    monkeypatch.setattr(raw_vectors, "PRIVATE_BYTES", private_bytes)
    monkeypatch.setattr(raw_vectors, "sync_vector", syncing)
    for number, hashed in enumerate([member, member, stranger, member]):
        with changing(files, 7, LENGTH, f"upload {number}") as vector:
            if what == "elements":
                bloom.insert(vector, shape, hashed)
            else:
                whole_vector = np.zeros(LENGTH, dtype=np.uint8)
                bloom.insert(whole_vector, shape, hashed)
                bloom.unite(vector, 0, whole_vector)
    assert 0 < dirty[1] == dirty[2] == dirty[3]


def dirty_kib(mapped: Path) -> int:
    """KiB of this process's maps of the file that are not on disk yet."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(str(mapped)):
            inside = True
        elif inside and "-" in line.split()[0]:
            inside = False
        elif inside and line.startswith(("Private_Dirty:", "Shared_Dirty:")):
            found += int(line.split()[1])
    return found


def test_only_a_mapped_vector_can_be_synced(tmp_path: Path) -> None:
    """A copy would be 'synced' without any effect on the disk; a view of the map is as good as the map."""
    vectors = RawVectors(tmp_path)
    vectors.create(7, 64)
    with vectors.open(7, 64) as vector:
        raw_vectors.sync_vector(vector[3:])
        with pytest.raises(TypeError):
            raw_vectors.sync_vector(vector.copy())


@pytest.mark.parametrize("length", [0, 1, LENGTH - 1, LENGTH + 1, 2 * LENGTH])
def test_a_vector_of_another_length_is_refused(files: VectorFiles, tmp_path: Path, length: int) -> None:
    """Neither mapped, stretched nor cut; create does not repair it either."""
    path = tmp_path / "vectors" / "7.bits"
    os.truncate(path, length)
    for use in (
        lambda: changing(files, 7, LENGTH).__enter__(),
        lambda: next(files.read_vector(7, LENGTH, UNRECORDED)),
        lambda: files.create_vector(7, LENGTH),
        lambda: files.check_vector(7, LENGTH, UNRECORDED),
    ):
        with pytest.raises(StateCorrupted, match=r"vectors/7\.bits"):
            use()
    assert path.stat().st_size == length


def test_a_missing_vector_and_one_behind_a_link_are_refused(files: VectorFiles, tmp_path: Path) -> None:
    """A link could lead a write out of the folder."""
    (tmp_path / "vectors" / "7.bits").unlink()
    (tmp_path / "outside").write_bytes(bytes(64))
    (tmp_path / "vectors" / "8.bits").symlink_to(tmp_path / "outside")
    for set_id in (7, 8, 9):
        with pytest.raises(StateCorrupted, match=f"vectors/{set_id}"), changing(files, set_id, 64):
            pass
        with pytest.raises(StateCorrupted, match=f"vectors/{set_id}"):
            next(files.read_vector(set_id, 64, UNRECORDED))
