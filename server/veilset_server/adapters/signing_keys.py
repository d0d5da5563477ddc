"""The service's Ed25519 signing key: made at first start, readable by its owner only.

Any 32 bytes are some private key, so a damaged one would be taken for another; the file therefore starts with a line that
holds the checksum of the rest, as explanatory text, which PEM allows before its block.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from veilset.errors import StateCorrupted
from veilset_server.adapters.durability import new_file, write_all

FILE_NAME = "signing.pem"


def load_or_make_key(folder: Path, *, may_make: bool) -> Ed25519PrivateKey:
    """The key in ``folder``, made if there is none and ``may_make``.

    may_make: whether the state is new; readers pin the key, so a state in use that lost its key gets no other silently.
    Raises StateCorrupted if the file is missing then, or does not hold the key that was written.
    """
    path = folder / FILE_NAME
    if not path.exists():
        if not may_make:
            raise StateCorrupted(f"{path}: missing, though the state folder is in use; restore it", file=FILE_NAME)
        _write(path, Ed25519PrivateKey.generate())
    first_line, _, pem = path.read_bytes().partition(b"\n")
    if first_line != _first_line(pem):
        raise StateCorrupted(f"{path}: damaged (the checksum in its first line is of another content)", file=FILE_NAME)
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise StateCorrupted(f"{path}: not an Ed25519 private key in PEM form", file=FILE_NAME)
    return key


def _first_line(pem: bytes) -> bytes:
    return f"veilset signing key; the rest of this file has SHA-256 {hashlib.sha256(pem).hexdigest()}".encode("ascii")


def _write(path: Path, key: Ed25519PrivateKey) -> None:
    """All of it or nothing, durably, before anything is signed with it. Raises StorageFull."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with new_file(path) as descriptor:
        write_all(descriptor, _first_line(pem) + b"\n" + pem)
