"""The rows of a Spark data frame that an exclusion list leaves: the release is broadcast, and each task asks it in memory.

veilset fetch customers customers.veilset --redis redis://localhost:16379/0
spark-submit docs/examples/spark_filtering.py customers.veilset campaign.parquet email kept.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import veilset

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame


def without_members(frame: DataFrame, column: str, release: bytes) -> DataFrame:
    """The rows whose value is not taken for a member. release: the bytes of a saved release (`View.save`)."""
    shared = frame.sparkSession.sparkContext.broadcast(release)

    def keep(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow as pa

        view = veilset.open(shared.value)  # checked and opened once in each task
        for batch in batches:
            yield batch.filter(pa.array(~view.contains_many(batch.column(column))))

    return frame.mapInArrow(keep, frame.schema)


def main() -> None:
    """Filter a Parquet file."""
    from pyspark.sql import SparkSession

    release, source, column, target = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    without_members(spark.read.parquet(source), column, Path(release).read_bytes()).write.parquet(target)


if __name__ == "__main__":
    main()
