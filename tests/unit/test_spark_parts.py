"""What Spark's tasks do, one after the other without Spark: ``make spark`` runs them in a real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest

from veilset import PartialVector, spark
from veilset._service import spark_tasks
from veilset.core.encodings.bloom.chunk_bits import ChunkBits, pack
from veilset.core.params import FilterParameters, Normalization
from veilset.core.release.header import CHUNK_BYTES, chunk_sizes
from veilset.errors import InvalidInput

SHAPE = FilterParameters(3 * 8 * CHUNK_BYTES + 77, 3, seed=11)
ELEMENTS = [f"element {number}" for number in range(3000)]
GROUPS = 3


def hash_partition(values: Sequence[Any], kind: arrow.DataType | None = None, size: int = 700) -> list[tuple[Any, ...]]:
    """The rows that a task makes of its partition, as Spark hands them on."""
    column = arrow.array(values, kind or arrow.string())
    batches = [
        arrow.RecordBatch.from_arrays([column.slice(start, size)], ["c"]) for start in range(0, len(column), size)
    ]
    task = spark_tasks.HashPartition(SHAPE, Normalization.TRIM_CASEFOLD, None)
    return [tuple(row.values()) for batch in task(batches) for row in batch.to_pylist()]


def tree(partitions: Sequence[list[tuple[Any, ...]]]) -> list[tuple[int, ChunkBits]]:
    """The reduction as `veilset.spark` has Spark do it."""
    grouped = [pair for number, rows in enumerate(partitions) for pair in spark_tasks.InGroup(GROUPS)(number, rows)]
    within = [spark_tasks.without_group((key, value)) for key, value in by_key(grouped, spark_tasks.unite_rows)]
    return list(spark_tasks.in_order(by_key(within, spark_tasks.unite_rows)))


def by_key(pairs: Sequence[tuple[Any, Any]], function: Callable[[Any, Any], Any]) -> list[tuple[Any, Any]]:
    """reduceByKey."""
    values: dict[Any, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return [(key, reduce(function, held)) for key, held in values.items()]


def expected() -> list[tuple[int, bytes]]:
    """The chunks that one machine makes of all elements."""
    part = PartialVector(SHAPE, Normalization.TRIM_CASEFOLD)
    part.add(ELEMENTS)
    return list(part.chunks())


@pytest.mark.parametrize("most_positions", [1 << 22, 100])
def test_the_tree_makes_the_filter(most_positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions, whatever a task holds at a time, text or binary, duplicates among them."""
    monkeypatch.setattr(spark_tasks, "MOST_POSITIONS", most_positions)
    partitions = [hash_partition(ELEMENTS[start : start + 400]) for start in range(0, 3000, 300)]
    partitions.append(hash_partition([element.upper().encode() for element in ELEMENTS[:5]], arrow.binary()))
    partitions.append(hash_partition([]))
    sizes = chunk_sizes(SHAPE.vector_bytes)
    assert [(index, pack(ones, sizes[index])) for index, ones in tree(partitions)] == expected()


def test_nulls_and_what_is_no_element_are_counted() -> None:
    """Over all partitions, ahead of all chunks."""
    partitions = [
        hash_partition(["a", None, "b"]),
        hash_partition([None]),
        hash_partition(["", "  ", "c", None]),
        hash_partition(["x" * 5000]),
        hash_partition([]),
    ]
    rows = tree(partitions)
    assert [index for index, _ in rows[:2]] == [spark_tasks.NULLS, spark_tasks.REFUSED]
    assert [spark_tasks.number_of(counted) for _, counted in rows[:2]] == [3, 3]
    assert all(index >= 0 for index, _ in rows[2:])


def test_an_unforeseen_failure_tells_its_kind_only() -> None:
    """Its text may hold elements, and Spark writes it into its logs."""

    class Broken:
        @property
        def null_count(self) -> int:
            raise LookupError("secret@example.com")

    class Batch:
        def column(self, _: int) -> Broken:
            return Broken()

    with pytest.raises(RuntimeError, match="LookupError") as told:
        list(spark_tasks.HashPartition(SHAPE, Normalization.NONE, None)([Batch()]))
    assert "secret" not in str(told.value)
    assert told.value.__suppress_context__


def test_chunks_go_to_spark_partitions_in_order() -> None:
    """A range of chunks each, so that partitions one after the other are the vector from its beginning; counts first."""
    places = [spark_tasks.chunk_partition(index) for index in (-2, -1, *range(200))]
    assert places == sorted(places)
    assert max(np.bincount(places[2:])) == spark_tasks.CHUNKS_EACH


def test_a_spark_connect_session_is_refused_by_name() -> None:
    """Its data frames have no RDDs; failing somewhere inside would not say so."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(InvalidInput, match="Spark Connect") as refused:
        spark.add_column("localhost:1", "set", frame, "email")
    assert refused.value.field == "dataframe"


def test_the_executors_do_without_grpc() -> None:
    """Every worker process of an executor imports what its tasks need."""
    script = "import sys, veilset._service.spark_tasks; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"grpc", "redis", "pyspark", "pyarrow"} & set(done.stdout.split())
