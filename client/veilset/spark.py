"""A column of a Spark DataFrame into a set: executors hash, drop duplicates and upload; the driver commits all of it together.

Each task uploads its partition as one part of the upload (`Service.upload_part`), straight to the service, and resumes it when
Spark runs it again; nothing travels through the driver but a row for each partition. Its finish commits all parts, or none.

The executors need veilset and PyArrow, reach the service under the same address, and find the files of a TLS set-up under
the same names. The job's tasks carry the access token and the secret of a keyed scheme: on a network that others share,
Spark's own encryption (``spark.network.crypto.enabled``, ``spark.io.encryption.enabled``) has to be on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from veilset._input.columns import element_batches
from veilset._input.digests import DistinctDigests, InvalidElements, digest_batch
from veilset._service.channel import open_channel
from veilset._service.endpoint import Endpoint
from veilset._service.service import Service, connect
from veilset._service.upload import Upload, UploadPart, UploadResult
from veilset._system import jitter
from veilset.core.elements.hashing import check_key, digests
from veilset.core.params import MAX_PART, HashParameters, Normalization, Operation, check_choice
from veilset.core.release import wire
from veilset.errors import InvalidInput, OutOfSequence, UploadMismatch, VeilsetError, must_be
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame


SCHEMA = "part int, elements long, checksum binary, nulls long, invalid long"
RETRY_SECONDS = 60.0
_ATTEMPTS = 8
_PAUSE = 1.0


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


@dataclass(frozen=True, slots=True)
class UploadPartition:
    """What a task does: it uploads batches of the column as one part, and returns one row that describes the part.

    A task that Spark runs again sends the same digests in the same order, as they are sorted, so it goes on where the earlier
    attempt ended. Where a partition has nulls, or invalid elements that are not skipped, these are counted and nothing is sent.
    """

    target: Endpoint
    set_name: str
    upload_id: str
    operation: int
    hashing: HashParameters
    normalization: Normalization
    skip_invalid: bool
    key: bytes | None = field(repr=False)

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        try:
            yield self.upload(context.partitionId() + 1, batches)
        except VeilsetError:  # holds no element
            raise
        except Exception as error:  # noqa: BLE001 - its text may hold elements, and Spark would log it
            raise RuntimeError(f"veilset: uploading a partition failed: {type(error).__name__}") from None

    def upload(self, part: int, batches: Iterable[RecordBatch]) -> RecordBatch:
        """The row of SCHEMA of one partition. Raises what an upload raises."""
        if part > MAX_PART:
            raise InvalidInput("dataframe", f"dataframe has more than {MAX_PART} partitions; coalesce it")
        nulls, valid, invalid = 0, 0, InvalidElements(skip=True)
        with DistinctDigests() as distinct:
            for batch in batches:
                values = batch.column(0)
                nulls += values.null_count
                for elements in element_batches(values.drop_null()):
                    hashed = digest_batch(elements, 0, self.hashing, self.normalization, self.key, invalid)
                    valid += len(hashed)
                    distinct.add(hashed)
            if nulls or (invalid.count and not self.skip_invalid) or not valid:
                return _row(UploadPart(part, 0, b""), nulls, invalid.count)
            return _row(self._send(part, distinct), nulls, invalid.count)

    def _send(self, part: int, distinct: DistinctDigests) -> UploadPart:
        opening = pb.OpenUpload(
            set_name=self.set_name,
            upload_id=self.upload_id,
            operation=self.operation,  # type: ignore[arg-type]
            part=part,
        )
        with open_channel(self.target) as channel:
            stub = MembershipServiceStub(channel)
            for attempt in range(_ATTEMPTS):
                sent = Upload(
                    stub, self.target, opening, distinct.batches(), made_with=(self.hashing, self.normalization)
                )
                try:
                    sent.run(RETRY_SECONDS)
                except (OutOfSequence, UploadMismatch):  # another attempt of this task sends too, or sent a part of it
                    if attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(_PAUSE * jitter(0.5, 1.5))
                else:
                    return sent.sealed()
        raise AssertionError


def _row(part: UploadPart, nulls: int, invalid: int) -> RecordBatch:
    import pyarrow as arrow

    columns = [
        arrow.array([part.part], arrow.int32()),
        arrow.array([part.elements], arrow.int64()),
        arrow.array([part.checksum], arrow.binary()),
        arrow.array([nulls], arrow.int64()),
        arrow.array([invalid], arrow.int64()),
    ]
    return arrow.RecordBatch.from_arrays(columns, ["part", "elements", "checksum", "nulls", "invalid"])
