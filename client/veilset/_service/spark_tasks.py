"""What the tasks of `veilset.spark` do in the executors; kept apart so that those need not import gRPC.

A row is (index, ones): a chunk's index and what is known of its ones (`core.encodings.bloom.chunk_bits`). Two negative indexes
stand for how many values were nulls, or no elements: one by one they are not told, as Spark logs what a task raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veilset._input.element_digests import digest_batches
from veilset.core.elements.hashing import positions
from veilset.core.elements.normalization import normalize
from veilset.core.encodings.bloom.chunk_bits import ChunkBits, split_positions, unite
from veilset.core.params import FilterParameters, Normalization
from veilset.errors import InvalidInput

if TYPE_CHECKING:
    from pyarrow import RecordBatch

CHUNKS_EACH = 64
"""Chunks of the finished vector in one of Spark's partitions, 64 MiB; the driver holds one partition at a time."""

MOST_POSITIONS = 1 << 22
"""Positions that a task holds before it gives them to Spark: 32 MiB, a few times that while they are sorted."""

NULLS, REFUSED = -2, -1
SCHEMA = "index long, packed boolean, ones binary"

Row = tuple[int, ChunkBits]


@dataclass(frozen=True, slots=True)
class HashPartition:
    """What a task does: batches of the column → (index, packed or places, ones) of what it holds."""

    shape: FilterParameters
    profile: Normalization
    key: bytes | None

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        try:
            yield from map(_to_arrow, self._rows(batches))
        except Exception as error:  # noqa: BLE001 - its text may hold elements, and Spark would log it
            raise RuntimeError(f"veilset: hashing a partition failed: {type(error).__name__}") from None

    def _rows(self, batches: Iterable[RecordBatch]) -> Iterator[Row]:
        held: list[NDArray[np.uint64]] = []
        for batch in batches:
            values = batch.column(0)
            if values.null_count:
                yield NULLS, _count(values.null_count)
                values = values.drop_null()
            try:
                found = list(digest_batches(values, self.shape, self.profile, self.key))
            except InvalidInput:
                yield REFUSED, _count(sum(not self._is_element(value) for value in values.to_pylist()))
                continue
            held += [positions(hashed, self.shape.bits, self.shape.hashes) for hashed in found]
            if sum(part.size for part in held) >= MOST_POSITIONS:
                yield from self._split(held)
        yield from self._split(held)

    def _split(self, held: list[NDArray[np.uint64]]) -> Iterator[Row]:
        if held:
            yield from split_positions(np.concatenate([part.ravel() for part in held]))
            held.clear()

    def _is_element(self, value: Any) -> bool:
        try:
            normalize([value], self.profile)
        except InvalidInput:
            return False
        return True


def number_of(counted: ChunkBits) -> int:
    """The number in a row that counts."""
    return int(counted.view(np.uint64)[0])


def _count(number: int) -> ChunkBits:
    """A number in the place of a chunk's ones."""
    return np.array([number], dtype=np.uint64).view(np.uint8)


def _to_arrow(row: Row) -> RecordBatch:
    import pyarrow as arrow

    index, ones = row
    columns = [
        arrow.array([index], arrow.int64()),
        arrow.array([ones.dtype == np.uint8], arrow.bool_()),
        arrow.array([ones.tobytes()], arrow.binary()),
    ]
    return arrow.RecordBatch.from_arrays(columns, ["index", "packed", "ones"])


@dataclass(frozen=True, slots=True)
class InGroup:
    """Arrow's rows → ((index, group of the partition), (index, ones)), to be united within the group first."""

    groups: int

    def __call__(self, partition: int, rows: Iterable[Any]) -> Iterator[tuple[tuple[int, int], Row]]:
        group = partition % self.groups
        for index, packed, ones in rows:
            found: ChunkBits = np.frombuffer(ones, np.uint8) if packed else np.frombuffer(ones, np.uint32)
            yield (index, group), (index, found)


def unite_rows(left: Row, right: Row) -> Row:
    """Two rows of one index as one. May change ``left``."""
    index = left[0]
    if index < 0:
        return index, _count(number_of(left[1]) + number_of(right[1]))
    return index, unite(left[1], right[1])


def without_group(grouped: tuple[tuple[int, int], Row]) -> tuple[int, Row]:
    """What a group made of a chunk, to be united with that of the other groups."""
    return grouped[0][0], grouped[1]


def chunk_partition(index: int) -> int:
    """The partition of a row: `CHUNKS_EACH` chunks each, in order; counts in the first."""
    return max(index, 0) // CHUNKS_EACH


def in_order(rows: Iterable[tuple[int, Row]]) -> Iterator[Row]:
    """The rows of a partition by rising index: counts first."""
    return (row for _, row in sorted(rows, key=_index))


def _index(row: tuple[int, Row]) -> int:
    return row[0]
