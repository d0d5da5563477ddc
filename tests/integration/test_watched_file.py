"""A file that others replace: the next question is answered from what stands there then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veilset.errors import StateCorrupted
from veilset_server.state.tokens import WatchedFile


def parse(text: bytes) -> bytes:
    """A parser that knows damage when it sees it."""
    if text.startswith(b"bad"):
        raise StateCorrupted("damaged")
    return text


def replace(path: Path, content: bytes) -> None:
    """As writers do it: whole, by rename."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").rename(path)


def test_the_next_question_sees_the_new_content(tmp_path: Path) -> None:
    """Also content of the same length and with the same time of change, which a rename gives another inode."""
    path = tmp_path / "file"
    replace(path, b"one")
    watched = WatchedFile(path, parse)
    for content in (b"one", b"two", b"six", b"", b"longer"):
        replace(path, content)
        os.utime(path, ns=(0, 0))
        assert [watched.read() for _ in range(3)] == [content] * 3


def test_it_is_parsed_once(tmp_path: Path) -> None:
    """A question costs a stat."""
    path = tmp_path / "file"
    replace(path, b"one")
    parsed: list[bytes] = []

    def counting(text: bytes) -> bytes:
        parsed.append(text)
        return text

    watched = WatchedFile(path, counting)
    assert {watched.read() for _ in range(100)} == {b"one"}
    assert parsed == [b"one"]


def test_damage_is_told_until_it_is_mended(tmp_path: Path) -> None:
    """Never the content of before: it may hold what was revoked since."""
    path = tmp_path / "file"
    replace(path, b"good")
    watched = WatchedFile(path, parse)
    assert watched.read() == b"good"
    replace(path, b"bad")
    for _ in range(100):
        with pytest.raises(StateCorrupted) as refusal:
            watched.read()
    assert refusal.traceback[-1].frame.code.name != "parse"  # raised a hundred times, but not with a hundred traces
    assert len(refusal.traceback) == 2
    replace(path, b"mended")
    assert watched.read() == b"mended"


def test_a_file_that_was_there_is_missed(tmp_path: Path) -> None:
    """A door that was shut does not open because its list of keys is gone."""
    path = tmp_path / "file"
    watched = WatchedFile(path, parse)
    seen = [watched.ever_there]
    with pytest.raises(FileNotFoundError):
        watched.read()
    replace(path, b"one")
    seen.append(watched.ever_there)
    path.unlink()
    assert [*seen, watched.ever_there] == [False, True, True]
    with pytest.raises(FileNotFoundError):
        watched.read()
