"""The service's Ed25519 signing key: made at first start, readable by its owner only."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from veilset.errors import StateCorrupted

FILE_NAME = "signing.pem"


def load_or_make_key(folder: Path) -> Ed25519PrivateKey:
    """The key in ``folder``, made if there is none. Raises StateCorrupted if the file holds no Ed25519 key."""
    path = folder / FILE_NAME
    if not path.exists():
        _write(path, Ed25519PrivateKey.generate())
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise StateCorrupted(f"{path}: not an Ed25519 private key in PEM form", file=path)
    return key


def _write(path: Path, key: Ed25519PrivateKey) -> None:
    """All of it or nothing: readers pin the key, so a torn file must never look like one."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
