"""The checksums of a raw vector, in a file of their own beside it.

    head      magic (8) · set id (u64) · length of the vector in bytes (u64) · bytes in a chunk (u64)
    mark      SHA-256 of the id of the upload whose merge is under way (32); zeros: none is
    merged    SHA-256 of the id of the upload that was merged last (32); zeros: none was
    base      root of the sums that the ledger knew when that merge began (32)
    sums      SHA-256 of each chunk of the vector, in order, as the last merge left it
    expected  the same, as the merge under way will leave it; missing if none is, or if it is not known before
    end       SHA-256 of all before

All integers are little-endian. The file is replaced whole, so a crash leaves the one before or the one behind. A vector's
bits are secret, and so are their hashes: the file stays in the state folder. The root, SHA-256 of all sums, is in the ledger
too, which takes it on when the upload is finished: so vector and sums of another age than the ledger are noticed. Between the
two a crash leaves a file that is ahead of the ledger, and that tells by ``merged`` and ``base`` that it is, and of what.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.ports import VECTOR_CHUNK_BYTES as CHUNK_BYTES
from veilset_server.records import VectorRecord
from veilset_server.state.durability import new_file, relative_name, storage_errors, write_all

MAGIC = b"vsvsums2"
_FIRST_MAGIC = b"vsvsums1"
"""Without merged and base."""

SUM_BYTES = 32
NO_MERGE = bytes(SUM_BYTES)
NO_ROOT = bytes(SUM_BYTES)
_HEAD = struct.Struct("<8sQQQ")
_MARK = slice(_HEAD.size, _HEAD.size + SUM_BYTES)
_MERGED = slice(_MARK.stop, _MARK.stop + SUM_BYTES)
_BASE = slice(_MERGED.stop, _MERGED.stop + SUM_BYTES)
_SUMS_START = _BASE.stop


@dataclass(frozen=True, slots=True)
class VectorSums:
    """sums, expected: 32 bytes for each chunk, one after the other. merging: the mark; NO_MERGE if no merge is under way.
    merged: the mark of the last merge; NO_MERGE if there was none. base: the root that the ledger had then."""

    set_id: int
    length: int
    merging: bytes
    sums: bytes
    expected: bytes = b""
    merged: bytes = NO_MERGE
    base: bytes = NO_ROOT

    @property
    def root(self) -> bytes:
        """What the ledger keeps of it."""
        return hashlib.sha256(self.sums).digest()

    def belongs_to(self, record: VectorRecord) -> bool:
        """Whether this is what the ledger says, or ahead of it by merges of accepted uploads only."""
        if record.root is None:
            return True
        root = ledger_root(record, self.length)
        ahead = self.base == root and self.merged in {mark_of(upload_id) for upload_id in record.accepted}
        return self.root == root or ahead

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


def ledger_root(record: VectorRecord, length: int) -> bytes:
    """The root that the ledger knows; NO_ROOT if it knows none."""
    if record.root is None:
        return NO_ROOT
    return record.root or hashlib.sha256(sums_of_zeros(length)).digest()


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
    found = unpack_sums(data) or _unpack_first(data)
    if found is None or (found.set_id, found.length) != (set_id, length):
        raise StateCorrupted(f"{name}: damaged (not the checksums of this set's vector)", file=name)
    return found


def pack_sums(content: VectorSums) -> bytes:
    """The bytes of the file."""
    head = _HEAD.pack(MAGIC, content.set_id, content.length, CHUNK_BYTES)
    plain = head + content.merging + content.merged + content.base + content.sums + content.expected
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
    return VectorSums(set_id, length, plain[_MARK], sums, expected, plain[_MERGED], plain[_BASE])


def _unpack_first(data: bytes) -> VectorSums | None:
    """What the first version of this file holds."""
    plain, end = data[:-SUM_BYTES], data[-SUM_BYTES:]
    if not plain.startswith(_FIRST_MAGIC) or hashlib.sha256(plain).digest() != end:
        return None
    present = MAGIC + plain[len(MAGIC) : _MARK.stop] + NO_MERGE + NO_ROOT + plain[_MARK.stop :]
    return unpack_sums(present + hashlib.sha256(present).digest())
