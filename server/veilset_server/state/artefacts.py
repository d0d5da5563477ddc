"""Release artefacts: the noisy bits of one release in one file, which appears whole or not at all.

    head   magic (8) · set id (u64) · sequence (u64) · length of the bits in bytes (u64) · CRC-32 of these
    bits

Their hashes are in the signed manifest; who reads the bits compares them there.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.state.durability import TEMPORARY_SUFFIX, new_file, relative_name, storage_errors, write_all

MAGIC = b"vsnoisy1"
_HEAD = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CRC.size
_NAME = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)\.noisy", re.ASCII)


class ArtefactFiles:
    """The folder of artefacts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, set_id: int, sequence: int, chunks: Iterator[bytes], length: int) -> None:
        """Write ``length`` bytes of bits durably; takes the place of an artefact that was never charged.

        Raises StorageFull, ValueError (the chunks are not ``length`` long), and what ``chunks`` raises; nothing is left then.
        """
        with new_file(self._path(set_id, sequence)) as descriptor:
            os.posix_fallocate(descriptor, 0, HEAD_BYTES + length)  # a full disk shows before any noise is drawn
            write_all(descriptor, _head(set_id, sequence, length))
            rest = length
            for chunk in chunks:
                rest -= len(chunk)
                if rest < 0:
                    break
                write_all(descriptor, chunk)
            if rest != 0:
                raise ValueError(f"artefact: {length} bytes were declared, the chunks differ by {-rest}")

    def read(self, set_id: int, sequence: int, chunk_bytes: int) -> Iterator[bytes]:
        """The bits by chunks, all ``chunk_bytes`` long but the last.

        Raises StateCorrupted at once if the file is missing, another's or of the wrong length.
        """
        path = self._path(set_id, sequence)
        os.close(_open_checked(path, set_id, sequence))
        return _read(path, set_id, sequence, chunk_bytes)

    def name(self, set_id: int, sequence: int) -> str:
        """How errors call the file."""
        return relative_name(self._path(set_id, sequence))

    def list(self) -> list[tuple[int, int]]:
        """(set_id, sequence) of all artefacts, in order."""
        matches = (_NAME.fullmatch(entry.name) for entry in self._folder.iterdir())
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def remove_half_made(self) -> None:
        """Delete what a crash left unfinished; none may be under way."""
        for path in self._folder.glob(f"*{TEMPORARY_SUFFIX}"):
            path.unlink()

    def remove(self, set_id: int, sequence: int) -> None:
        """Delete an artefact; no error if it is gone."""
        self._path(set_id, sequence).unlink(missing_ok=True)

    def _path(self, set_id: int, sequence: int) -> Path:
        return self._folder / f"{set_id:d}-{sequence:d}.noisy"


def _read(path: Path, set_id: int, sequence: int, chunk_bytes: int) -> Iterator[bytes]:
    descriptor = _open_checked(path, set_id, sequence)
    try:
        offset, end = HEAD_BYTES, os.fstat(descriptor).st_size
        while offset < end:
            with storage_errors(relative_name(path)):
                chunk = os.pread(descriptor, min(chunk_bytes, end - offset), offset)
            if len(chunk) != min(chunk_bytes, end - offset):
                raise _damaged(path, "it became shorter while it was read")
            yield chunk
            offset += len(chunk)
    finally:
        os.close(descriptor)


def _open_checked(path: Path, set_id: int, sequence: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise _damaged(path, "missing or unreadable") from error
    length = os.fstat(descriptor).st_size - HEAD_BYTES
    if length < 0 or os.pread(descriptor, HEAD_BYTES, 0) != _head(set_id, sequence, length):
        os.close(descriptor)
        raise _damaged(path, "head or length is not as written")
    return descriptor


def _head(set_id: int, sequence: int, length: int) -> bytes:
    plain = _HEAD.pack(MAGIC, set_id, sequence, length)
    return plain + _CRC.pack(zlib.crc32(plain))


def _damaged(path: Path, what: str) -> StateCorrupted:
    return StateCorrupted(f"{relative_name(path)}: damaged ({what})", file=relative_name(path))
