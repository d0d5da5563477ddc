"""The distinct digests of a stream, in memory and through files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset._input.digests import FILES, DistinctDigests
from veilset.core.elements.hashing import digests


def distinct_of(batches: Sequence[NDArray[np.uint64]], memory_digests: int) -> list[int]:
    """What comes out, sorted."""
    with DistinctDigests(memory_digests) as collected:
        for batch in batches:
            collected.add(batch)
        return sorted(digest for found in collected.batches() for digest in found.tolist())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12), st.sampled_from([1, 7, 40, 1000]))
def test_every_digest_comes_out_once(numbers: list[list[int]], memory_digests: int) -> None:
    """However often and in whatever batches it went in, through files or not."""
    batches = [digests([b"%d" % number for number in batch]) for batch in numbers]
    expected = {digest for batch in batches for digest in batch.tolist()}
    assert distinct_of(batches, memory_digests) == sorted(expected)


def test_a_long_stream_is_held_in_files() -> None:
    """With memory for a tenth of it; every part is small, and the parts are whole."""
    hashed = digests([b"%d" % number for number in range(50_000)])
    with DistinctDigests(5000) as collected:
        for start in range(0, 50_000, 1000):
            collected.add(hashed[start : start + 1000])
            collected.add(hashed[:1000])
        parts = list(collected.batches())
    assert len(parts) == FILES
    assert max(map(len, parts)) < 1200
    assert sum(map(len, parts)) == 50_000


def test_repetitions_need_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short list that repeats itself stays in memory."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: pytest.fail("a file was opened"))
    hashed = digests([b"%d" % number for number in range(100)])
    assert len(distinct_of([hashed] * 200, 1000)) == 100


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither names in the folder, nor open files after the end."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the entries are not paths
    distinct_of([digests([b"%d" % number for number in range(1000)])], 10)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_an_empty_stream_gives_an_empty_batch() -> None:
    assert distinct_of([], 10) == []
