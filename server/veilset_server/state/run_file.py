"""The file of a run that was folded: sorted digests in blocks, each with a checksum, never changed once it is there.

    block  up to 8,192 digests (8 bytes each), strictly increasing, all added or all removed
    table  for each block: first digest (u64) · 2 · number of digests + 1 if they are removed (u64) · XXH3-64 of the block (u64)
    tail   magic (8) · set id (u64) · number of the run (u64) · number of blocks (u64)

All integers are little-endian. Blocks of one kind come in ascending order. The ledger holds the XXH3-128 of table and tail, so
every byte of the file is covered: the file that it names, or StateCorrupted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from veilset.errors import StateCorrupted
from veilset_server.state.durability import new_file, relative_name, storage_errors, write_all
from veilset_server.state.fold import LIMIT, Digests, Slice, between

BLOCK_DIGESTS = 1 << 13
_MAGIC = b"vsrun\0\0\1"
_ENTRY = np.dtype([("first", "<u8"), ("count", "<u8"), ("hash", "<u8")])
_TAIL = struct.Struct("<8sQQQ")
_DIGEST_BYTES = 8


def write_run(path: Path, set_id: int, number: int, slices: Iterator[Slice]) -> bytes:
    """Write a run that appears whole and durable, or not at all; returns its checksum for the ledger. Raises StorageFull, and
    what ``slices`` raises."""
    table: list[tuple[int, int, int]] = []
    with new_file(path) as descriptor:
        for found in slices:
            for digests, removed in ((found.added, 0), (found.removed, 1)):
                for start in range(0, len(digests), BLOCK_DIGESTS):
                    block = digests[start : start + BLOCK_DIGESTS].astype("<u8", copy=False)
                    data = block.tobytes()
                    write_all(descriptor, data)
                    table.append((int(block[0]), 2 * len(block) + removed, xxhash.xxh3_64_intdigest(data)))
        end = np.array(table, dtype=_ENTRY).tobytes() + _TAIL.pack(_MAGIC, set_id, number, len(table))
        write_all(descriptor, end)
    return xxhash.xxh3_128_digest(end)


class FoldedRun:
    """A `fold.Source` on such a file. Not to be shared between threads; `close` lets go of the file."""

    def __init__(self, path: Path, checksum: bytes, sent: int) -> None:
        """checksum: as `write_run` returned it. Raises StateCorrupted naming the file."""
        self.sent = sent
        self._name = relative_name(path)
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise self._damaged("missing or unreadable") from error
        try:
            self._table = self._read_table(checksum)
        except BaseException:
            self.close()
            raise
        counts = np.minimum(self._table["count"] >> np.uint64(1), np.uint64(BLOCK_DIGESTS)).astype(np.int64)
        self._offsets = _DIGEST_BYTES * np.concatenate(([0], np.cumsum(counts)))
        removed = (self._table["count"] & np.uint64(1)).astype(np.bool_)
        self._blocks = np.flatnonzero(~removed), np.flatnonzero(removed)

    def _read_table(self, checksum: bytes) -> NDArray[np.void]:
        length = os.fstat(self._descriptor).st_size
        tail = self._read(max(0, length - _TAIL.size), _TAIL.size)
        blocks = _TAIL.unpack(tail)[3] if len(tail) == _TAIL.size else -1
        start = length - _TAIL.size - blocks * _ENTRY.itemsize
        if blocks < 0 or start < 0:
            raise self._damaged("its end is not as written")
        end = self._read(start, length - start)
        if xxhash.xxh3_128_digest(end) != checksum:
            raise self._damaged("its end is not as written")
        return np.frombuffer(end, dtype=_ENTRY, count=blocks)

    def slice(self, low: int, high: int) -> Slice:
        """As `fold.Source.slice`."""
        added, high = self._part(0, low, high)
        removed, high = self._part(1, low, high)
        return Slice(between(added, low, high), removed, high)

    def _part(self, removed: int, low: int, high: int) -> tuple[Digests, int]:
        blocks = self._blocks[removed]
        firsts = self._table["first"][blocks]
        begin = max(0, int(np.searchsorted(firsts, np.uint64(low), side="right")) - 1)
        end = int(np.searchsorted(firsts, np.uint64(high), side="right"))
        parts: list[Digests] = []
        held = 0
        for block in blocks[begin:end]:
            part = between(self._block(int(block)), low, high)
            held += len(part)
            parts.append(part)
            if held > LIMIT:
                found = np.concatenate(parts)[:LIMIT]
                return found, int(found[-1])
        return (np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)), high

    def _block(self, block: int) -> Digests:
        offset, end = int(self._offsets[block]), int(self._offsets[block + 1])
        data = self._read(offset, end - offset)
        if xxhash.xxh3_64_intdigest(data) != int(self._table["hash"][block]):
            raise self._damaged(f"block {block} is not as written")
        return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)

    def _read(self, offset: int, length: int) -> bytes:
        with storage_errors(self._name):
            return os.pread(self._descriptor, length, offset)

    def _damaged(self, what: str) -> StateCorrupted:
        return damaged_run(self._name, what)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def damaged_run(name: str, what: str) -> StateCorrupted:
    """The refusal that names a run."""
    return StateCorrupted(
        f"{name}: damaged ({what}); restore the file from a copy, or replace what the set holds", file=name
    )
