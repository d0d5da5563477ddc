"""``veilset secret``: random, for its owner's eyes, never over another file, and recognised by its check value."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.programs import Finished
from veilset.cli.options import read_key
from veilset.core.elements.hashing import key_check

Run = Callable[..., Finished]


def test_a_secret_is_made_once(veilset_here: Run, tmp_path: Path) -> None:
    """32 bytes that read back as they are; mode 0600; what is shown is the check value and nothing of the secret."""
    path = tmp_path / "secret"
    done = veilset_here("secret", "create", path)
    key = path.read_bytes()
    assert len(key) == 32
    assert read_key(path) == key, "reading cuts a newline off, which a secret must not end with"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done.out == f"wrote {path}; check value {key_check(key)}\n"
    assert veilset_here("secret", "check", path).out == f"check value {key_check(key)}\n"
    assert key.hex() not in done.out + done.err
    assert "File exists" in veilset_here("secret", "create", path).complaint()
    assert path.read_bytes() == key


def test_two_secrets_differ(veilset_here: Run, tmp_path: Path) -> None:
    """As random ones do."""
    values = {
        veilset_here("secret", "create", tmp_path / str(number), "--json").json()["key_check"] for number in range(8)
    }
    assert len(values) == 8


@pytest.mark.parametrize("content", [b"", b"too short\n", b"x" * 65])
def test_what_is_no_secret_is_refused(veilset_here: Run, tmp_path: Path, content: bytes) -> None:
    """With the length that one has."""
    (tmp_path / "secret").write_bytes(content)
    complaint = veilset_here("secret", "check", tmp_path / "secret").complaint()
    assert complaint == "key must be 16 to 64 secret bytes"
    assert "key-file cannot be read" in veilset_here("secret", "check", tmp_path / "none").complaint()


def test_a_keyed_spec_needs_a_secret(veilset_here: Run, tmp_path: Path) -> None:
    """And an unkeyed one takes no notice of one that the environment names."""
    veilset_here("secret", "create", tmp_path / "secret")
    create = (
        "spec",
        "create",
        tmp_path / "keyed.toml",
        "--size",
        "5000",
        "--epsilon",
        "6",
        "--adjacency",
        "add-remove",
    )
    complaint = veilset_here(*create, "--scheme", "blake2b-1").complaint()
    assert (
        complaint == "key-file is needed with scheme blake2b-1; the service receives only a check value of the secret"
    )
    assert not (tmp_path / "keyed.toml").exists()
    named = {"VEILSET_KEY_FILE": str(tmp_path / "secret")}
    assert veilset_here(*create, "--json", settings=named).json()["key_check"] == ""
    (tmp_path / "keyed.toml").unlink()
    keyed = veilset_here(*create, "--scheme", "blake2b-1", "--json", settings=named).json()
    assert keyed["key_check"] == key_check((tmp_path / "secret").read_bytes())
