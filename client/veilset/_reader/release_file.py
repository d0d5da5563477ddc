"""A generation as one file: for each release, the base first, magic, manifest length, manifest, packed bits.

What `View.save` writes, `veilset.open` reads; a base release alone is a generation.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from veilset.errors import ReleaseRejected

MAGIC = b"veilset\x01"
MAX_MANIFEST_BYTES = 6 << 20  # 2^40 bits have 2^17 chunks of 34 bytes each in the header

_LENGTH_BYTES = 4


def write_release(file: BinaryIO, manifest: bytes, chunks: Iterable[bytes]) -> None:
    """Write magic, manifest length (4 bytes, little-endian), manifest and bits."""
    file.write(MAGIC)
    file.write(len(manifest).to_bytes(_LENGTH_BYTES, "little"))
    file.write(manifest)
    for chunk in chunks:
        file.write(chunk)


def save_releases(path: Path, releases: Iterable[tuple[bytes, Iterable[bytes]]]) -> None:
    """Write manifest and chunks of each release to a file beside its name, then give it the name, so that a reader never sees
    half of it."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            for manifest, chunks in releases:
                write_release(file, manifest, chunks)
        temporary.replace(path)
    except OSError as error:  # of the name that the caller knows
        raise type(error)(error.errno, error.strerror, str(path)) from None


def read_manifest(file: BinaryIO) -> bytes:
    """The manifest of an open release file, which is left at its first bit. Raises ReleaseRejected."""
    if file.read(len(MAGIC)) != MAGIC:
        raise ReleaseRejected("file: not a veilset release", check="format")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 0 < length <= MAX_MANIFEST_BYTES:
        raise ReleaseRejected("file: manifest length out of range", check="format")
    manifest = file.read(length)
    if len(manifest) != length:
        raise ReleaseRejected("file: cut off in the manifest", check="format")
    return manifest
