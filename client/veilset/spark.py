"""A column of a Spark DataFrame into a set: hashed by the executors, OR-ed together by Spark, merged by the service.

Each task hashes its partition into the ones of a partial vector, chunk by chunk (`core.encodings.bloom.chunk_bits`), and ones are
OR-ed in a tree: within the task, over groups of about √P of the P partitions, over the groups. No task and not the driver
ever holds a whole vector: a task has a bounded buffer of positions and Spark's own combiner, which goes to disk at
``spark.python.worker.memory``; the driver gets 64 chunks at a time and passes them on in one MergeVector upload.
Publishing, noise and ledger stay where they are.

The executors need veilset and PyArrow too. The partial vectors that they exchange, and the secret of a keyed scheme, are as
secret as the column: on a network that others share, Spark's own encryption (``spark.network.crypto.enabled``,
``spark.io.encryption.enabled``) has to be on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from veilset._service.merge import MergeResult
from veilset._service.service import Service, connect
from veilset._service.spark_tasks import (
    CHUNKS_EACH,
    NULLS,
    SCHEMA,
    HashPartition,
    InGroup,
    Row,
    chunk_partition,
    in_order,
    number_of,
    unite_rows,
    without_group,
)
from veilset.core.elements.hashing import digests
from veilset.core.elements.keys import check_key
from veilset.core.encodings.bloom.chunk_bits import ChunkBits, pack
from veilset.core.params import FilterParameters, Normalization
from veilset.core.release.header import CHUNK_BYTES, chunk_sizes
from veilset.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_column(
    service: Service | str,
    set_name: str,
    dataframe: DataFrame,
    column: str,
    *,
    upload_id: str | None = None,
    key: bytes | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> MergeResult:
    """Add every value of a text or binary column to a set; returns once the service holds it durably.

    service: a connection, or the address of one, then with the credentials that the environment names. upload_id: give one
    to be able to resume after the driver died, with the same data. key: the secret of a keyed scheme; goes to the executors.
    on_progress: called with the share of the vector that the service holds. Raises InvalidInput (no such column, nulls, or
    values that are no elements: how many, not which; nothing was sent then), and what `Service.merge_vector` raises.
    """
    _check_column(dataframe, column)
    with connect(service) if isinstance(service, str) else nullcontext(service) as connection:
        info = connection.get_set(set_name)
        check_key(info.filter, key, f"the set {set_name}")
        digests([], info.filter.scheme, info.filter.seed, key)  # a keyed scheme needs a secret, another must have none
        vector = _SparkVector(
            info.filter, info.normalization, _reduced(dataframe, column, info.filter, info.normalization, key)
        )
        return connection.merge_vector(set_name, vector, upload_id=upload_id, on_progress=on_progress)


def _check_column(dataframe: DataFrame, column: str) -> None:
    if type(dataframe).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput("dataframe", "of a classic Spark session: Spark Connect has no RDDs")
    kinds = dict(dataframe.dtypes)
    if column not in kinds:
        raise InvalidInput("column", "one of the data frame's: " + ", ".join(kinds), column)
    if kinds[column] not in ("string", "binary"):
        raise InvalidInput("column", "of type string or binary; cast it", kinds[column])


@dataclass(frozen=True, slots=True)
class _SparkVector:
    """VectorChunks over rows that come from Spark. ``rows``: read once."""

    filter: FilterParameters
    normalization: Normalization
    rows: Iterator[Row]

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        sizes = chunk_sizes(self.filter.vector_bytes)
        for index, ones in self.rows:
            yield index, pack(ones, sizes[index])


def _reduced(
    dataframe: DataFrame, column: str, shape: FilterParameters, profile: Normalization, key: bytes | None
) -> Iterator[Row]:
    """The rows of the whole column's vector, by rising index. Runs the job up to the first of them.

    Raises InvalidInput if there are nulls or what is no element.
    """
    count = -(-shape.vector_bytes // CHUNK_BYTES)
    last = -(-count // CHUNKS_EACH)
    quoted = "`" + column.replace("`", "``") + "`"
    hashed = dataframe.select(quoted).mapInArrow(HashPartition(shape, profile, key), SCHEMA).rdd
    groups = math.isqrt(hashed.getNumPartitions()) + 1
    rows = (
        hashed.mapPartitionsWithIndex(InGroup(groups))
        .reduceByKey(unite_rows, numPartitions=min(groups * last, hashed.getNumPartitions()))
        .map(without_group)
        .reduceByKey(unite_rows, numPartitions=last, partitionFunc=chunk_partition)
        .mapPartitions(in_order)
        .toLocalIterator()
    )
    first = next(rows, None)
    if first is not None and first[0] < 0:  # counts come first, in the first partition
        raise _refusal(*first)
    return chain([] if first is None else [first], rows)


def _refusal(kind: int, counted: ChunkBits) -> InvalidInput:
    number = number_of(counted)
    if kind == NULLS:
        return InvalidInput("column", f"without nulls, of which there are {number}; drop or fill them")
    return InvalidInput("column", f"of elements only, and {number} values are none under this set's normalization")
