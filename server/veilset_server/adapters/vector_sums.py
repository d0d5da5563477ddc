"""The checksums of a raw vector, in a file of their own beside it.

    head      magic (8) · set id (u64) · length of the vector in bytes (u64) · bytes in a chunk (u64)
    mark      SHA-256 of the id of the upload whose merge is under way (32); zeros: none is
    sums      SHA-256 of each chunk of the vector, in order, as the last merge left it
    expected  the same, as the merge under way will leave it; missing if none is, or if it is not known before
    end       SHA-256 of all before

All integers are little-endian. The file is replaced whole, so a crash leaves the one before or the one behind. A vector's
bits are secret, and so are their hashes: the file stays in the state folder.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.adapters.durability import new_file, relative_name, storage_errors, write_all
from veilset_server.ports import VECTOR_CHUNK_BYTES as CHUNK_BYTES

MAGIC = b"vsvsums1"
SUM_BYTES = 32
NO_MERGE = bytes(SUM_BYTES)
_HEAD = struct.Struct("<8sQQQ")
_SUMS_START = _HEAD.size + SUM_BYTES


@dataclass(frozen=True, slots=True)
class VectorSums:
    """sums, expected: 32 bytes for each chunk, one after the other. merging: the mark; NO_MERGE if no merge is under way."""

    set_id: int
    length: int
    merging: bytes
    sums: bytes
    expected: bytes = b""

    def of(self, index: int) -> bytes:
        """The sum of chunk ``index``."""
        return self.sums[index * SUM_BYTES : (index + 1) * SUM_BYTES]

    def matches(self, index: int, chunk: bytes | memoryview) -> bool:
        """Whether these bytes are chunk ``index``."""
        return hashlib.sha256(chunk).digest() == self.of(index)


def chunk_count(length: int) -> int:
    """Number of chunks of a vector of ``length`` bytes."""
    return -(-length // CHUNK_BYTES)


def mark_of(upload_id: str) -> bytes:
    """How the file names an upload."""
    return hashlib.sha256(upload_id.encode("utf-8", "surrogatepass")).digest()


def sums_of(chunks: Iterable[bytes | memoryview]) -> bytes:
    """The sums of these chunks."""
    return b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)


def sums_of_zeros(length: int) -> bytes:
    """The sums of a vector of zeros, without reading one."""
    whole, rest = divmod(length, CHUNK_BYTES)
    return sums_of([bytes(CHUNK_BYTES)]) * whole + (sums_of([bytes(rest)]) if rest else b"") if length else b""


def write_sums(path: Path, content: VectorSums) -> None:
    """Put the file in place, durably, in one step. Raises StorageFull; the one before stays then."""
    plain = pack_sums(content)
    with new_file(path) as descriptor:
        write_all(descriptor, plain)


def read_sums(path: Path, set_id: int, length: int) -> VectorSums:
    """The file's content. Raises StateCorrupted if it is missing, damaged, or another vector's."""
    name = relative_name(path)
    most = _SUMS_START + (2 * chunk_count(length) + 1) * SUM_BYTES
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise StateCorrupted(f"{name}: missing or unreadable", file=name) from error
    try:
        with storage_errors(name), os.fdopen(descriptor, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise StateCorrupted(f"{name}: missing or unreadable", file=name) from error
    found = unpack_sums(data)
    if found is None or (found.set_id, found.length) != (set_id, length):
        raise StateCorrupted(f"{name}: damaged (not the checksums of this set's vector)", file=name)
    return found


def pack_sums(content: VectorSums) -> bytes:
    """The bytes of the file."""
    head = _HEAD.pack(MAGIC, content.set_id, content.length, CHUNK_BYTES)
    plain = head + content.merging + content.sums + content.expected
    return plain + hashlib.sha256(plain).digest()


def unpack_sums(data: bytes) -> VectorSums | None:
    """What `pack_sums` made, or None for anything else."""
    plain, end = data[:-SUM_BYTES], data[-SUM_BYTES:]
    if len(plain) < _SUMS_START or hashlib.sha256(plain).digest() != end:
        return None
    magic, set_id, length, chunk_bytes = _HEAD.unpack_from(plain)
    size = chunk_count(length) * SUM_BYTES
    sums, expected = plain[_SUMS_START : _SUMS_START + size], plain[_SUMS_START + size :]
    if magic != MAGIC or chunk_bytes != CHUNK_BYTES or len(sums) != size or len(expected) not in (0, size):
        return None
    return VectorSums(set_id, length, plain[_HEAD.size : _SUMS_START], sums, expected)
