"""Small state files: whatever one changed bit or a cut leaves is refused by name, or means the same as before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from veilset.errors import StateCorrupted
from veilset_server.records import Mark
from veilset_server.state.anchor import AnchorFile
from veilset_server.state.keys import FILE_NAME, SigningKey, change_keys, load_or_make_keys, new_key, read_keys, rotate
from veilset_server.state.state_folder import read_format
from veilset_server.state.tokens import TokenFile
from veilset_server.usecases.abandoned_uploads import IdleFile

MARK = Mark(7, 3_000_000_000, Fraction(3, 10**9))


def damaged(good: bytes) -> Iterator[bytes]:
    """Every single bit changed, and every shorter beginning."""
    for place in range(len(good)):
        yield good[:place]
        for bit in range(8):
            yield good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :]


def refused_or_same(path: Path, read: Callable[[], object]) -> int:
    """How many damages were refused; the others have to mean what the whole file means. No read may change the file."""
    good, meaning, refused = path.read_bytes(), read(), 0
    for content in damaged(good):
        path.write_bytes(content)
        try:
            found = read()
        except StateCorrupted as error:
            refused += path.name in error.message
        else:
            assert found == meaning, content
        assert path.read_bytes() == content
    path.write_bytes(good)
    assert read() == meaning
    return refused


@pytest.mark.parametrize("rotations", [0, 2])
def test_a_damaged_signing_key_is_never_taken_for_another(rotations: int, tmp_path: Path) -> None:
    """Any 32 bytes are a private key; only the line above tells."""
    load_or_make_keys(tmp_path, 1, may_make=True)
    for number in range(rotations):
        change_keys(tmp_path, lambda keys, now_us=number: rotate(keys, new_key(now_us), now_us, 0))  # type: ignore[misc]
    path = tmp_path / FILE_NAME
    bits = len(path.read_bytes()) * 8
    refused = refused_or_same(path, lambda: secrets_of(load_or_make_keys(tmp_path, 2, may_make=False)))
    assert refused > bits * 0.9
    assert path.stat().st_mode & 0o777 == 0o600


def secrets_of(keys: list[SigningKey]) -> list[tuple[bytes, bytes, int, int | None]]:
    """All that a key file holds."""
    return [
        (key.public, key.private.private_bytes_raw() if key.private else b"", key.since_us, key.retires_us)
        for key in keys
    ]


def test_a_state_in_use_gets_no_new_signing_key(tmp_path: Path) -> None:
    """Readers pinned the one that is gone."""
    with pytest.raises(StateCorrupted, match=FILE_NAME):
        load_or_make_keys(tmp_path, 1, may_make=False)
    assert not (tmp_path / FILE_NAME).exists()


def test_a_damaged_anchor_never_forgets(tmp_path: Path) -> None:
    """A changed digit would be JSON all the same."""
    path = tmp_path / "state.anchor"
    AnchorFile(path).write("s", "a", MARK)
    refused = refused_or_same(path, lambda: AnchorFile(path).read("s", "a"))
    assert refused > len(path.read_bytes()) * 8 * 0.9
    assert AnchorFile(path).read("s", "a") == MARK


@pytest.mark.parametrize("name", ["format.json", "tokens.json", "signing.pem", "idle.json"])
def test_a_pipe_in_place_of_a_state_file_is_refused(name: str, tmp_path: Path) -> None:
    """At once, where reading it would wait for a writer."""
    os.mkfifo(tmp_path / name)
    readers: dict[str, Callable[[], object]] = {
        "format.json": lambda: read_format(tmp_path),
        "tokens.json": TokenFile(tmp_path).read,
        "signing.pem": lambda: read_keys(tmp_path),
        "idle.json": IdleFile(tmp_path).read,
    }
    if name == "idle.json":
        assert readers[name]() == {}
    else:
        with pytest.raises((StateCorrupted, OSError), match=name):
            readers[name]()


def test_a_format_file_nested_deeply_is_refused(tmp_path: Path) -> None:
    """As any other that is none."""
    (tmp_path / "format.json").write_bytes(b"[" * 200_000)
    with pytest.raises(StateCorrupted, match=r"format\.json: not a format file"):
        read_format(tmp_path)
