"""A column of a Spark DataFrame into a set: executors hash, drop duplicates and upload; the driver commits all of it together.

Each task uploads its partition as one part of the upload (`Service.upload_part`), straight to the service, and resumes it when
Spark runs it again; nothing travels through the driver but a row for each partition. Its finish commits all parts, or none.

The executors need veilset and PyArrow, reach the service under the same address, and find the files of a TLS set-up under
the same names. The job's tasks carry the access token and the secret of a keyed scheme: on a network that others share,
Spark's own encryption (``spark.network.crypto.enabled``, ``spark.io.encryption.enabled``) has to be on.
"""

from __future__ import annotations

import secrets
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from veilset._service.service import Service, connect
from veilset._service.spark_tasks import SCHEMA, UploadPartition
from veilset._service.upload import UploadPart, UploadResult
from veilset.core.elements.hashing import check_key, digests
from veilset.core.params import Operation, check_choice
from veilset.core.release import wire
from veilset.errors import InvalidInput, must_be

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def upload_column(
    service: Service | str,
    set_name: str,
    dataframe: DataFrame,
    column: str,
    *,
    operation: Operation | str = Operation.ADD,
    upload_id: str | None = None,
    key: bytes | None = None,
    skip_invalid: bool = False,
) -> UploadResult:
    """Add every value of a text or binary column to a set, remove it, or make the column its content; returns once the service
    holds all of it durably.

    service: a connection, or the address of one, then with the credentials that the environment names. operation: add, remove
    or replace, as `Service.add`, `remove` and `replace`. upload_id: give one to be able to resume after the driver died, with
    the same data in the same partitions, at most 10000. key: the secret of a keyed scheme; goes to the executors. skip_invalid:
    leave out what is no element. The result counts the distinct elements of each partition. The column has to come out the same
    whenever Spark computes it. Raises InvalidInput (no such column, nulls, or values that are no elements: how many, not which)
    and what `Service.add` raises; the set is not changed then.
    """
    _check_column(dataframe, column)
    chosen = check_choice("operation", operation, Operation)
    with connect(service) if isinstance(service, str) else nullcontext(service) as connection:
        info = connection.get_set(set_name)
        hashing = info.hashing
        key = check_key(hashing, key, f"the set {set_name}")
        digests([], hashing.scheme, hashing.seed, key)  # a keyed scheme needs a secret
        task = UploadPartition(
            connection.target,
            set_name,
            upload_id or secrets.token_hex(16),
            wire.to_number(wire.OPERATION, chosen),
            hashing,
            info.normalization,
            skip_invalid,
            key,
        )
        quoted = "`" + column.replace("`", "``") + "`"
        rows = dataframe.select(quoted).mapInArrow(task, SCHEMA).collect()
        if nulls := sum(row.nulls for row in rows):
            raise InvalidInput("column", f"column holds {nulls} nulls; drop or fill them")
        invalid = sum(row.invalid for row in rows)
        if invalid and not skip_invalid:
            raise InvalidInput(
                "column", f"column holds {invalid} values that are no elements under this set's normalization"
            )
        parts = [UploadPart(row.part, row.elements, bytes(row.checksum)) for row in rows if row.elements]
        return replace(connection.finish_upload(chosen, set_name, parts, upload_id=task.upload_id), invalid=invalid)


def _check_column(dataframe: DataFrame, column: str) -> None:
    kinds = dict(dataframe.dtypes)
    if column not in kinds:
        raise must_be("column", "one of the data frame's: " + ", ".join(kinds), column)
    if kinds[column] not in ("string", "binary"):
        raise must_be("column", "of type string or binary; cast it", kinds[column])
