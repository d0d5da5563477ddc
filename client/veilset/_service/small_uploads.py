"""Uploads that fit into one call: no stream, and a single commit to the service's ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import grpc

from veilset._input.columns import Batch
from veilset._input.digests import InvalidElements, digest_batch
from veilset._service.endpoint import Endpoint
from veilset._service.errors import from_rpc_error
from veilset._service.upload import Patience, UploadOptions, UploadResult
from veilset.core.elements.hashing import check_key, pack_digests
from veilset.core.params import MAX_SMALL_ELEMENTS
from veilset.core.release import wire
from veilset.errors import Unavailable
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc


def leading_batches(batches: Iterable[Batch]) -> tuple[list[Batch], bool]:
    """The first batches, until they hold more elements than one call takes; and whether these were all."""
    held: list[Batch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) > MAX_SMALL_ELEMENTS:
            return held, False
    return held, True


class SmallUploads:
    """The small uploads of one connection. Thread-safe.

    The hash parameters of a set are fetched once. If the set was deleted and created anew meanwhile, the service refuses digests
    made with the old ones, and they are fetched again.
    """

    def __init__(
        self, stub: membership_pb2_grpc.MembershipServiceStub, target: Endpoint, timeout_seconds: float
    ) -> None:
        self._stub = stub
        self._target = target
        self._timeout = timeout_seconds
        self._sets: dict[str, pb.MembershipSet] = {}

    def describe(self, set_name: str, patience: Patience) -> pb.MembershipSet:
        """The set as it was when first fetched. Raises NotFound, and Unavailable while the service is away."""
        while (described := self._sets.get(set_name)) is None:
            try:
                self._sets[set_name] = self._stub.GetSet(pb.GetSetRequest(name=set_name), timeout=self._timeout).set
            except grpc.RpcError as error:
                failure = from_rpc_error(error, self._target)
                if not isinstance(failure, Unavailable):
                    raise failure from None
                patience.wait(failure, answered=False)
        return described

    def send(self, opening: pb.OpenUpload, batches: Sequence[Batch], options: UploadOptions) -> UploadResult:
        """Send all batches in one call. Raises as `veilset._service.upload.Upload.run` does."""
        patience = Patience(options.get("retry_seconds"))
        asked_anew = False
        while True:
            described = self.describe(opening.set_name, patience)
            packed, invalid = _hash(described, batches, options)
            request = pb.AddBatchRequest(
                set_name=opening.set_name,
                upload_id=opening.upload_id,
                operation=opening.operation,
                digests=packed,
                hashing=described.hashing,
                normalization=described.normalization,
            )
            try:
                answer = self._stub.AddBatch(request, timeout=self._timeout)
            except grpc.RpcError as error:
                failure = from_rpc_error(error, self._target)
                if isinstance(failure, Unavailable):
                    patience.wait(failure, answered=True)
                elif failure.details.get("field") == "hashing" and not asked_anew:
                    asked_anew = True
                    self._sets.pop(opening.set_name, None)
                else:
                    raise failure from None
            else:
                if (on_progress := options.get("on_progress")) is not None:
                    on_progress(answer.elements)
                return UploadResult(opening.upload_id, answer.elements, 0, invalid)


def _hash(described: pb.MembershipSet, batches: Sequence[Batch], options: UploadOptions) -> tuple[bytes, int]:
    """The packed digests, and how many elements were skipped. Raises InvalidInput."""
    hashing = wire.hashing_from_proto(described.hashing)
    key = check_key(hashing, options.get("key"), f"the set {described.name}")
    normalization = wire.from_number("normalization", wire.NORMALIZATION, described.normalization)
    invalid = InvalidElements(skip=options.get("skip_invalid", False))
    packed: list[bytes] = []
    position = 0
    for batch in batches:
        packed.append(pack_digests(digest_batch(batch, position, hashing, normalization, key, invalid)))
        position += len(batch)
    invalid.refuse()
    return b"".join(packed), invalid.count
