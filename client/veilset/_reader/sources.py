"""Where a reader gets releases from: Redis, or a file. No source is trusted: the reader checks all that it returns.

A file holds a generation: for each release, the base first, magic, manifest length, manifest, packed bits. `View.save` writes it
and `veilset.open` reads it; a base release alone is a generation.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import connect_redis, transient
from veilset._reader.redis_url import RedisUrl, parse_redis_url
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.signing import MAX_MANIFEST_BYTES, open_manifest
from veilset.errors import NotFound, ReleaseRejected, Unavailable

MAGIC = b"veilset\x01"

_LENGTH_BYTES = 4

MAX_POINTER_BYTES = 18
"""One more is read, so a pointer has at most 19 digits."""


def write_release(file: BinaryIO, manifest: bytes, chunks: Iterable[bytes]) -> None:
    """Write magic, manifest length (4 bytes, little-endian), manifest and bits."""
    file.write(MAGIC)
    file.write(len(manifest).to_bytes(_LENGTH_BYTES, "little"))
    file.write(manifest)
    for chunk in chunks:
        file.write(chunk)


def save_releases(path: Path, releases: Iterable[tuple[bytes, Iterable[bytes]]]) -> None:
    """Write manifest and chunks of each release to a temporary file and rename it, so that a reader never sees half of it."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            for manifest, chunks in releases:
                write_release(file, manifest, chunks)
        temporary.replace(path)
    except OSError as error:  # of the name that the caller knows
        raise type(error)(error.errno, error.strerror, str(path)) from None


def read_manifest(file: BinaryIO) -> bytes:
    """The manifest at this place of an open release file, which is left where the vector begins. Raises ReleaseRejected."""
    if file.read(len(MAGIC)) != MAGIC:
        raise ReleaseRejected("file: it is not a veilset release", check="format")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 0 < length <= MAX_MANIFEST_BYTES:
        raise ReleaseRejected("file: the length of its manifest is out of range", check="format")
    manifest = file.read(length)
    if len(manifest) != length:
        raise ReleaseRejected("file: it ends within the manifest", check="format")
    return manifest


class ReleaseSource(Protocol):
    """Manifest and chunks of releases, as they are stored."""

    def latest(self) -> int:
        """Sequence of the newest release. Raises NotFound, Unavailable."""

    def manifest(self, sequence: int) -> bytes:
        """The manifest of a release. Raises NotFound, Unavailable."""

    def chunk(self, sequence: int, index: int) -> bytes:
        """One chunk of the packed bits; empty if it is not there. Raises Unavailable."""

    def close(self) -> None:
        """Close the connection or file."""


class RedisSource:
    """Releases of one set in Redis or Valkey; ``retries`` of each command."""

    def __init__(self, url: str | RedisUrl, set_name: str, retries: int = 2) -> None:
        found = url if isinstance(url, RedisUrl) else parse_redis_url(url)
        self._client = connect_redis(found, retries=retries)
        self._set_name = set_name
        self._place = found.place
        self._closed = threading.Event()

    def latest(self) -> int:
        """As `ReleaseSource.latest`: the sequence in the set's pointer."""
        value = self._get(keys.latest(self._set_name), MAX_POINTER_BYTES)
        if not value.isdigit() or not int(value):
            raise NotFound(f"set {self._set_name} has no release in this Redis", field="set_name")
        return int(value)

    def manifest(self, sequence: int) -> bytes:
        """As `ReleaseSource.manifest`."""
        value = self._get(keys.manifest(self._set_name, sequence), MAX_MANIFEST_BYTES)
        if not value:
            raise NotFound(f"release {self._set_name}/{sequence} is not in this Redis", field="sequence")
        return value

    def chunk(self, sequence: int, index: int) -> bytes:
        """As `ReleaseSource.chunk`; a release may expire while it is read."""
        return self._get(keys.chunk(self._set_name, sequence, index), CHUNK_BYTES)

    def close(self) -> None:
        """Close the connection; a read in another thread ends now, and later ones raise Unavailable."""
        self._closed.set()
        self._client.close()

    def _get(self, key: str, most: int) -> bytes:
        """The value, cut to ``most`` + 1 bytes, as the store may hold one of any length."""
        if self._closed.is_set():
            raise Unavailable("Redis: this connection was closed", kind="CLOSED")
        try:
            with transient(self._place):
                value = self._client.getrange(key, 0, most)
        finally:
            if self._closed.is_set():  # meanwhile, and the command may have connected again
                self._client.close()
        return value if isinstance(value, bytes) else b""


class FileSource:
    """The releases of one generation in a file, or in bytes in memory. Raises ReleaseRejected for a file that holds none."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._releases: dict[int, tuple[bytes, int, int]] = {}
        self._newest = 0
        try:
            self._find_releases()
        except BaseException:
            file.close()
            raise

    def _find_releases(self) -> None:
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        while self._file.tell() < end or not self._releases:
            manifest = read_manifest(self._file)
            header = open_manifest(manifest)
            if header.sequence <= self._newest:
                raise ReleaseRejected("file: its releases are not in order", check="sequence")
            self._newest = header.sequence
            self._releases[header.sequence] = manifest, self._file.tell(), header.vector_bytes
            self._file.seek(header.vector_bytes, os.SEEK_CUR)

    def start(self, sequence: int) -> int:
        """Where the vector of a release begins in the file, in bytes. sequence: 0 for the newest."""
        return self._release(sequence)[1]

    def _release(self, sequence: int) -> tuple[bytes, int, int]:
        found = self._releases.get(sequence or self._newest)
        if found is None:
            raise NotFound(f"release {sequence} is not in this file, which ends with {self._newest}", field="sequence")
        return found

    def latest(self) -> int:
        """As `ReleaseSource.latest`."""
        return self._newest

    def manifest(self, sequence: int) -> bytes:
        """As `ReleaseSource.manifest`; 0 for the newest."""
        return self._release(sequence)[0]

    def chunk(self, sequence: int, index: int) -> bytes:
        """As `ReleaseSource.chunk`; shorter than it should be if the file is cut off."""
        _, start, length = self._release(sequence)
        self._file.seek(start + index * CHUNK_BYTES)
        return self._file.read(min(CHUNK_BYTES, length - index * CHUNK_BYTES))

    def close(self) -> None:
        """As `ReleaseSource.close`."""
        self._file.close()


def is_url(target: str | bytes | Path) -> bool:
    """Whether a target is a URL, and not a path or the bytes of a release file."""
    return isinstance(target, str) and "://" in target


def open_file(target: str | bytes | Path) -> FileSource:
    """The source for a path or the bytes of a release file.

    Raises NotFound if there is no such file, ReleaseRejected if it is no release.
    """
    if isinstance(target, bytes):
        return FileSource(io.BytesIO(target))
    try:
        return FileSource(Path(target).open("rb"))
    except OSError as error:
        raise NotFound(f"file {target}: {error.strerror}", field="target") from None
