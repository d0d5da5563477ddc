"""The state folder's signing keys in one PEM file, newest first, readable by its owner only; replaced whole, or not at all.

Any 32 bytes are some private key, so a damaged one would be taken for another; the file therefore starts with a line that holds
the checksum of the rest, as explanatory text, which PEM allows outside its blocks. Another such line stands before each key. A
file of the first version holds one key without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from veilset.errors import NotFound, StateCorrupted
from veilset_server.state.durability import new_file, write_all
from veilset_server.state.files import read_regular
from veilset_server.state.key_rotation import SigningKey, new_key

FILE_NAME = "signing.pem"

_ENTRY = re.compile(
    rb"(?:key (?P<id>[0-9a-f]{16}) since (?P<since>\d{1,18}) retires (?P<retires>\d{1,18}|never)\n)?"
    rb"(?P<pem>-----BEGIN (?P<kind>PRIVATE|PUBLIC) KEY-----\n[A-Za-z0-9+/=\n]+-----END (?P=kind) KEY-----\n)"
)


def load_or_make_keys(folder: Path, now_us: int, *, may_make: bool) -> list[SigningKey]:
    """The keys in ``folder``, newest first; one is made if there is none and ``may_make``.

    may_make: whether the state is new; readers pin keys, so a state in use that lost its own gets no other silently.
    Raises StateCorrupted if the file is missing then, or does not hold what was written; StorageFull.
    """
    path = folder / FILE_NAME
    if not path.exists():
        if not may_make:
            raise StateCorrupted(f"{path}: missing, though the state folder is in use; restore it", file=FILE_NAME)
        _write(path, [new_key(now_us)])
    return read_keys(folder)


def read_keys(folder: Path) -> list[SigningKey]:
    """The keys in ``folder``, newest first. Raises NotFound if there is no file, StateCorrupted if it is damaged."""
    path = folder / FILE_NAME
    try:
        first_line, _, rest = read_regular(path).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: there is none; is that a state folder that was in use?", field="state") from None
    if first_line != _first_line(rest):
        raise StateCorrupted(f"{path}: damaged (the checksum in its first line is of another content)", file=FILE_NAME)
    try:
        return _parse(rest)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StateCorrupted(
            f"{path}: not Ed25519 keys in PEM form, the newest a private one", file=FILE_NAME
        ) from None


def change_keys(folder: Path, change: Callable[[list[SigningKey]], list[SigningKey]]) -> list[SigningKey]:
    """Put what ``change`` makes of the keys in their place, durably, in one step; returns it. One change at a time.

    Raises NotFound, StateCorrupted, StorageFull, and what ``change`` raises; the file is as it was then.
    """
    with _held(folder):
        changed = change(read_keys(folder))
        _write(folder / FILE_NAME, changed)
        return changed


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"state: {folder} is no folder", field="state") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse(rest: bytes) -> list[SigningKey]:
    keys, end = [], 0
    for entry in _ENTRY.finditer(rest):
        if entry.start() != end:
            raise ValueError("text between keys")
        end = entry.end()
        private = None
        if entry["kind"] == b"PRIVATE":
            found = load_pem_private_key(entry["pem"], password=None)
            if not isinstance(found, Ed25519PrivateKey):
                raise ValueError("kind of key")
            private, public = found, found.public_key()
        else:
            other = load_pem_public_key(entry["pem"])
            if not isinstance(other, Ed25519PublicKey):
                raise ValueError("kind of key")
            public = other
        retires = entry["retires"] or b"never"
        key = SigningKey(
            public.public_bytes_raw(), private, int(entry["since"] or 0), None if retires == b"never" else int(retires)
        )
        if entry["id"] not in (None, key.key_id.encode()):
            raise ValueError("id of key")
        keys.append(key)
    if end != len(rest) or not keys or keys[0].private is None or keys[0].retires_us is not None:
        raise ValueError("no key that signs")
    return keys


def _first_line(rest: bytes) -> bytes:
    return f"veilset signing key; the rest of this file has SHA-256 {hashlib.sha256(rest).hexdigest()}".encode("ascii")


def _write(path: Path, keys: Sequence[SigningKey]) -> None:
    """All of it or nothing, durably, before anything is signed with it. Raises StorageFull."""
    rest = b"".join(map(_entry, keys))
    owner = path.parent.stat()
    with new_file(path) as descriptor:
        if os.geteuid() == 0:  # the service, which may be another user, has to be able to read it
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        write_all(descriptor, _first_line(rest) + b"\n" + rest)


def _entry(key: SigningKey) -> bytes:
    retires = "never" if key.retires_us is None else str(key.retires_us)
    line = f"key {key.key_id} since {key.since_us} retires {retires}\n".encode("ascii")
    return line + (_private_pem(key.private) if key.private is not None else public_pem(key.public))


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(public: bytes) -> bytes:
    """A raw public key in PEM form."""
    return Ed25519PublicKey.from_public_bytes(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
