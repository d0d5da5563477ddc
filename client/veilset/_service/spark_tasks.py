"""What the tasks of `veilset.spark` do in the executors: a partition of the column becomes a part of the upload."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veilset._input.columns import element_batches
from veilset._input.distinct import DistinctDigests
from veilset._input.element_digests import InvalidElements, digest_batch
from veilset._service.channel import open_channel
from veilset._service.endpoint import Endpoint
from veilset._service.upload import Upload, UploadPart
from veilset.core.params import MAX_PART, HashParameters, Normalization
from veilset.errors import InvalidInput, OutOfSequence, UploadMismatch, VeilsetError
from veilset.jitter import jitter
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

if TYPE_CHECKING:
    from pyarrow import RecordBatch

SCHEMA = "part int, elements long, checksum binary, nulls long, invalid long"
RETRY_SECONDS = 60.0

_ATTEMPTS = 8
_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class UploadPartition:
    """What a task does: batches of the column → one row that describes the part, which the service holds then.

    A task that Spark runs again sends the same digests in the same order, as they are sorted, so it goes on where the earlier
    attempt ended. A partition with nulls or, unless they are skipped, with what is no element is counted and not sent.
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
                except (
                    OutOfSequence,
                    UploadMismatch,
                ):  # another attempt of this task sends too, or left what it did not end
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
