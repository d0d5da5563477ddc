"""Release artefacts as files, and the files of a set that is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import new_files

from veilset.errors import StateCorrupted
from veilset_server.ports import VectorStore
from veilset_server.state.artefacts import HEAD_BYTES
from veilset_server.state.vector_files import VectorFiles


@pytest.fixture
def files(tmp_path: Path) -> VectorFiles:
    """The files of an empty state folder."""
    made = new_files(tmp_path)
    port: VectorStore = made  # checked by mypy
    assert port is made
    return made


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
