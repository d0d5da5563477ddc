"""The file of signing keys: an older one is read, a change is whole or not there, and two changes at once are both made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from veilset.errors import NotFound, StateCorrupted
from veilset_server.state import durability
from veilset_server.state import keys as keys_module
from veilset_server.state.keys import (
    FILE_NAME,
    SigningKey,
    change_keys,
    load_or_make_keys,
    new_key,
    read_keys,
    retire,
    rotate,
)

DAY = 86_400


def rotated(folder: Path, now_us: int = 1, overlap: int = DAY) -> list[SigningKey]:
    """After one more rotation."""
    return change_keys(folder, lambda keys: rotate(keys, new_key(now_us), now_us, overlap))


def ids(keys: list[SigningKey]) -> list[str]:
    """Names, newest first."""
    return [key.key_id for key in keys]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Times and private halves too; those that were destroyed are in no byte of the file."""
    load_or_make_keys(tmp_path, 1, may_make=True)
    rotated(tmp_path, 2)
    before = rotated(tmp_path, 3)
    secret = before[1].private
    assert secret is not None
    pem = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert pem in (tmp_path / FILE_NAME).read_bytes()
    written = change_keys(tmp_path, lambda keys: retire(keys, before[1].key_id, 4))
    found = read_keys(tmp_path)
    assert [(key.public, key.since_us, key.retires_us) for key in found] == [
        (key.public, key.since_us, key.retires_us) for key in written
    ]
    assert [key.private is not None for key in found] == [True, False, True]
    assert pem not in (tmp_path / FILE_NAME).read_bytes()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    """One key, of unknown age, that signs; a rotation takes it along."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / FILE_NAME).write_bytes(keys_module._first_line(pem) + b"\n" + pem)
    (found,) = load_or_make_keys(tmp_path, 5, may_make=False)
    assert (found.public, found.since_us, found.retires_us) == (private.public_key().public_bytes_raw(), 0, None)
    assert ids(rotated(tmp_path))[1] == found.key_id


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rest: b"",
        lambda rest: rest + rest.splitlines(keepends=True)[0],
        lambda rest: rest.replace(b"retires never", b"retires 5"),
        lambda rest: rest.replace(b"PRIVATE", b"PUBLIC"),
        lambda rest: b"key 0123456789abcdef" + rest[20:],
        lambda rest: rest.replace(b"\n", b"\r\n"),
    ],
    ids=["empty", "a line too many", "nobody signs", "another kind of key", "another id", "line ends"],
)
def test_a_whole_file_that_means_nothing_is_refused(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """With a checksum that fits, as somebody's editor or script would leave it."""
    load_or_make_keys(tmp_path, 1, may_make=True)
    path = tmp_path / FILE_NAME
    rest = spoil(path.read_bytes().partition(b"\n")[2])
    path.write_bytes(keys_module._first_line(rest) + b"\n" + rest)
    with pytest.raises(StateCorrupted, match=FILE_NAME):
        read_keys(tmp_path)
    with pytest.raises(StateCorrupted, match=FILE_NAME):
        rotated(tmp_path)


def test_no_folder_and_no_file_are_told_apart_from_damage(tmp_path: Path) -> None:
    """Nothing is made."""
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFound):
            read_keys(folder)
        with pytest.raises(NotFound):
            rotated(folder)
    assert list(tmp_path.iterdir()) == []


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["write_all", "sync_file", "rename", "sync_folder"])
def test_a_crash_leaves_the_old_keys_or_the_new_ones(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole; and the next change goes through."""
    old = ids(load_or_make_keys(tmp_path, 1, may_make=True))

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        owner = Path if step == "rename" else durability
        patch.setattr(owner, step, crash)
        with pytest.raises(Crash):
            rotated(tmp_path)
    after = ids(read_keys(tmp_path))
    assert after[-1:] == old
    assert len(after) == (2 if step == "sync_folder" else 1)
    assert ids(rotated(tmp_path))[1:] == after
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME}


def test_changes_at_once_are_all_made(tmp_path: Path) -> None:
    """By several processes, as when two administrators rotate."""
    first = ids(load_or_make_keys(tmp_path, 1, may_make=True))
    command = [sys.executable, "-m", "veilset", "keys", "rotate", "--state", str(tmp_path), "--json"]
    for process in [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(4)]:
        assert process.wait() == 0
    found = ids(read_keys(tmp_path))
    assert len(set(found)) == 5
    assert found[-1:] == first


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change for somebody else")
def test_what_root_changes_stays_the_services(tmp_path: Path) -> None:
    """Else the service, which is not root, could no longer read its keys."""
    load_or_make_keys(tmp_path, 1, may_make=True)
    os.chown(tmp_path, 12345, 12346)
    rotated(tmp_path)
    status = (tmp_path / FILE_NAME).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 12346, 0o600)
