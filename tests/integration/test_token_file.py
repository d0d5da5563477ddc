"""The tokens file: whatever bytes stand in it, it is read whole or refused; a killed writer leaves the old one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tokens import new_token
from veilset.errors import LimitExceeded, NotFound, StateCorrupted
from veilset_server.principals import Principal, Role
from veilset_server.state import durability
from veilset_server.state import tokens as tokens_module
from veilset_server.state.durability import json_checksum
from veilset_server.state.tokens import FILE_NAME, TokenFile, parse_tokens


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with three tokens."""
    state = tmp_path_factory.mktemp("state")
    for role in ("reader", "admin", "producer"):
        new_token(state, role, ["customers-*", "b"], seconds=60)
    return (state / FILE_NAME).read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every field."""
    text = new_token(tmp_path, ["reader", "admin"], ["b", "a-*"], "crm", 60)
    (record,) = TokenFile(tmp_path).read()
    assert record.principal == Principal("crm", frozenset({Role.READER, Role.ADMIN}), ("b", "a-*"))
    assert record.token_id == text.split("_")[1]
    assert record.expires_at_us == record.created_at_us + 60_000_000
    ended = TokenFile(tmp_path).revoke(record.token_id, 5)
    assert TokenFile(tmp_path).read() == [ended]
    assert TokenFile(tmp_path).revoke(record.token_id, 9).revoked_at_us == 5
    with pytest.raises(NotFound):
        TokenFile(tmp_path).revoke("none", 9)


@given(data=st.data())
def test_a_changed_file_is_refused(content: bytes, data: st.DataObject) -> None:
    """Bytes changed, cut off, put in: never an error of another kind, never other tokens."""
    whole = parse_tokens(content)
    place = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 20))
    changed = content[:place] + data.draw(st.binary(max_size=20)) + content[place + length :]
    with suppress(StateCorrupted):
        assert parse_tokens(changed) == whole  # white space between values may differ


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_other_json_is_refused(value: Any) -> None:
    """Whatever it is, also with a checksum that fits."""
    wrapped = {"version": 1, "tokens": value}
    wrapped["sha256"] = json_checksum({"version": 1, "tokens": value})
    for text in (json.dumps(value), json.dumps(wrapped)):
        with suppress(StateCorrupted):
            assert parse_tokens(text.encode()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("created_at_us", value) for value in (None, True, 1.5, 1e400, -1, 1 << 70, "1")),
        *(("expires_at_us", value) for value in (False, 1e400, -1, 1 << 70, "1")),
        *(("id", value) for value in (None, 1, ["a"])),
        *(("sha256", value) for value in (None, "", "00", "zz" * 32)),
        *(("roles", value) for value in ([], ["owner"], "reader", None, [1])),
        *(("sets", value) for value in ([], [""], None, [None], ["A"], "abc")),
        *(("name", value) for value in ("", None, 1, "a/b")),
    ],
)
def test_a_field_that_no_token_has_is_refused(content: bytes, key: str, value: Any) -> None:
    """Also with a checksum that fits: nothing is guessed."""
    found = json.loads(content)
    found.pop("sha256")
    found["tokens"][1][key] = value
    found["sha256"] = json_checksum(found)
    with pytest.raises(StateCorrupted):
        parse_tokens(json.dumps(found).encode())


def test_deep_nesting_is_refused() -> None:
    """As any damage, not by the interpreter's limit."""
    with pytest.raises(StateCorrupted):
        parse_tokens(b"[" * 100_000)


def test_a_full_file_lets_go_of_what_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And refuses one more only where all are valid."""
    monkeypatch.setattr(tokens_module, "MAX_TOKENS", 3)
    tokens = [new_token(tmp_path, "reader") for _ in range(3)]
    with pytest.raises(LimitExceeded):
        new_token(tmp_path, "reader")
    TokenFile(tmp_path).revoke(tokens[0].split("_")[1], 1)
    last = new_token(tmp_path, "reader")
    known = [record.token_id for record in TokenFile(tmp_path).read()]
    assert known == [token.split("_")[1] for token in (*tokens[1:], last)]


def test_a_writer_that_dies_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one takes its place in one step, or not at all."""
    new_token(tmp_path, "reader")
    before = (tmp_path / FILE_NAME).read_bytes()

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(durability, "write_all", dies)
    with pytest.raises(KeyboardInterrupt):
        new_token(tmp_path, "reader")
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]
