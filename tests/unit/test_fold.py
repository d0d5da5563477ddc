"""Folding runs: the last operation on a digest decides, in bounded memory, whatever the digests are."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.errors import StateCorrupted
from veilset_server.state import run_file, spool
from veilset_server.state import run_file as fold_module
from veilset_server.state.run_file import HIGHEST, FoldedRun, MemorySource, Slice, fold, last_operations, write_run
from veilset_server.state.spool import Spool, UploadedRun

SMALL_LIMIT = 8
DIGESTS = st.one_of(
    st.integers(0, 40), st.integers(HIGHEST - 20, HIGHEST), st.integers(1 << 63, (1 << 63) + 9), st.integers(0, HIGHEST)
)
OPERATIONS = st.lists(st.tuples(st.booleans(), st.lists(DIGESTS, max_size=60)), max_size=8)


def array(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


def model(operations: list[tuple[bool, list[int]]]) -> tuple[set[int], set[int]]:
    """What is added and what removed after all, with plain sets."""
    added: set[int] = set()
    removed: set[int] = set()
    for adds, digests in operations:
        (added if adds else removed).update(digests)
        (removed if adds else added).difference_update(digests)
    return added, removed


def gathered(slices: list[Slice]) -> tuple[list[int], list[int]]:
    return [int(d) for s in slices for d in s.added], [int(d) for s in slices for d in s.removed]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def uploaded(folder: Path, number: int, adds: bool, digests: list[int]) -> UploadedRun:
    path = folder / f"1-{number}.spool"
    path.unlink(missing_ok=True)
    held = Spool(path, 1, number)
    for start in range(0, len(digests), 7):
        held.append(held.sequence + 1, array(digests[start : start + 7]))
    held.close()
    return UploadedRun([(path, len(digests), held.checksum())], adds=adds)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.data())
def test_fold_of_files_equals_plain_sets(
    folder: Path, operations: list[tuple[bool, list[int]]], data: st.DataObject
) -> None:
    """However uploads are folded into files in between, and however small the memory."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (fold_module, run_file, spool):
            patch.setattr(module, "LIMIT", SMALL_LIMIT)
        patch.setattr(run_file, "BLOCK_DIGESTS", 3)
        sources = [uploaded(folder, number, *operation) for number, operation in enumerate(operations)]
        cut = data.draw(st.integers(0, len(sources)))
        newer = sources[cut:]
        path = folder / "1-9.run"
        checksum = write_run(path, 1, 9, fold(newer, keep_removed=True))
        folded = FoldedRun(path, checksum, sum(source.sent for source in newer))
        kept = gathered(list(fold([*sources[:cut], folded], keep_removed=True)))
        base = gathered(list(fold([*sources[:cut], folded])))
        folded.close()
    added, removed = model(operations)
    assert kept == (sorted(added), sorted(removed))
    assert base == (sorted(added), [])


@settings(max_examples=100, deadline=None)
@given(OPERATIONS)
def test_last_operation_of_small_uploads_decides(operations: list[tuple[bool, list[int]]]) -> None:
    found = last_operations([(adds, array(digests)) for adds, digests in operations])
    assert tuple(map(np.ndarray.tolist, found)) == tuple(map(sorted, model(operations)))


def test_ranges_cover_every_digest_once() -> None:
    digests = np.unique(np.random.default_rng(1).integers(0, 1 << 64, 10_000, np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_module, "LIMIT", 100)
        slices = list(fold([MemorySource(digests, digests[:0], len(digests))]))
    assert max(len(found.added) for found in slices) <= 100
    assert np.array_equal(np.concatenate([found.added for found in slices]), digests)
    assert slices[-1].high == HIGHEST


def test_a_range_that_was_shortened_is_never_lengthened_again() -> None:
    """By digests above it, which the sources behind were not asked for."""
    nothing = array([])
    sources = [
        MemorySource(array([0, 17, 27, 28, 30]), nothing, 5),
        MemorySource(nothing, array([2, 4, 5, 7, 9, 11, 12, 16, 18, 24, 26]), 11),
        MemorySource(array([15, 16, 20, 25]), nothing, 4),
        MemorySource(array([0, 1, 13]), nothing, 3),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_module, "LIMIT", SMALL_LIMIT)
        added, _ = gathered(list(fold(sources)))
    assert added == [0, 1, 13, 15, 16, 17, 20, 25, 27, 28, 30]


def test_any_changed_byte_of_a_run_is_noticed(tmp_path: Path) -> None:
    digests = np.arange(50, dtype=np.uint64) * np.uint64(1 << 58)
    path = tmp_path / "1-2.run"
    checksum = write_run(path, 1, 2, iter([Slice(digests, digests[:3] + np.uint64(1), HIGHEST)]))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StateCorrupted, match=r"1-2\.run"):
            list(fold([FoldedRun(path, checksum, 53)]))
    path.write_bytes(whole[:-1])
    with pytest.raises(StateCorrupted):
        FoldedRun(path, checksum, 53)


def test_any_changed_digest_of_an_upload_is_noticed(tmp_path: Path) -> None:
    run = uploaded(tmp_path, 1, True, list(range(20)))
    path = tmp_path / "1-1.spool"
    whole = path.read_bytes()
    for place in range(spool.FIRST_FRAME, len(whole)):
        if (place - spool.FIRST_FRAME) % (24 + 56) in range(16, 24):
            continue  # the checksum of a frame, in whose place there is that of the upload
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StateCorrupted, match=r"1-1\.spool"):
            list(fold([run]))


def test_repeats_without_end_do_not_grow_the_memory(tmp_path: Path) -> None:
    held = Spool(tmp_path / "1-1.spool", 1, 1)
    for sequence in range(1, 60):
        held.append(sequence, np.full(1 << 16, 7, dtype=np.uint64))
    run = UploadedRun([(tmp_path / "1-1.spool", held.elements, held.checksum())], adds=True)
    assert gathered(list(fold([run]))) == ([7], [])
    held.close()


def test_checksum_is_that_of_the_digests_in_order(tmp_path: Path) -> None:
    held = Spool(tmp_path / "1-1.spool", 1, 1)
    held.append(1, array([3, 1]))
    held.append(2, array([2]))
    assert held.checksum() == xxhash.xxh3_128_digest(struct.pack("<3Q", 3, 1, 2))
    held.close()
