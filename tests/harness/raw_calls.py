"""gRPC without the library in between: hand-driven uploads, and what a failed call tells."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import grpc
import xxhash
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from harness.patience import SECONDS
from veilset.core.elements.hashing import digests, pack_digests
from veilset.core.params import HashScheme
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Failure:
    """The status of a failed call, its sentence, and its details."""

    code: str
    message: str
    reason: str
    metadata: dict[str, str]
    fields: list[str]


def failure_of(error: grpc.RpcError) -> Failure:
    """Take a failed call apart."""
    call = cast(grpc.Call, error)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    status = rpc_status.from_call(call)
    for detail in status.details if status is not None else ():
        assert detail.Unpack(info) or detail.Unpack(bad), detail
    fields = [violation.field for violation in bad.field_violations]
    return Failure(call.code().name, call.details() or "", info.reason, dict(info.metadata), fields)


def fails(method: Callable[..., Any], request: object) -> Failure:
    """The failure of a unary call, which has to fail."""
    try:
        answer = method(request, timeout=SECONDS)
    except grpc.RpcError as error:
        return failure_of(error)
    raise AssertionError(f"the call did not fail but answered {answer}")


def refuse_publishing(stub: MembershipServiceStub, set_name: str) -> None:
    """Nothing was finished, so there is nothing to publish, and asking costs nothing."""
    refusal = fails(stub.PublishRelease, pb.PublishReleaseRequest(set_name=set_name, request_id="r"))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "FAILED_PRECONDITION")
    assert stub.GetBudget(pb.GetBudgetRequest(set_name=set_name)).budget.charges == 0


def open_upload(set_name: str, upload_id: str) -> pb.AddElementsRequest:
    """An open message."""
    return pb.AddElementsRequest(open=pb.OpenUpload(set_name=set_name, upload_id=upload_id))


def raw_batch(sequence: int, elements: Sequence[bytes]) -> pb.AddElementsRequest:
    """A batch of elements that the service hashes."""
    return pb.AddElementsRequest(batch=pb.Batch(sequence=sequence, elements=pb.Elements(values=elements)))


def digest_batch(sequence: int, packed: bytes) -> pb.AddElementsRequest:
    """A batch of packed digests."""
    return pb.AddElementsRequest(batch=pb.Batch(sequence=sequence, digests=packed))


def hashed(elements: Sequence[bytes], seed: int) -> bytes:
    """Packed digests as a producer makes them."""
    return pack_digests(digests(elements, HashScheme.MMH3, seed))


def finish(count: int, packed: bytes | None = None) -> pb.AddElementsRequest:
    """A finish message; ``packed``, all digests in order, gives it its checksum."""
    checksum = b"" if packed is None else xxhash.xxh3_128_digest(packed)
    return pb.AddElementsRequest(finish=pb.FinishUpload(count=count, checksum=checksum))


class RawStream(Generic[Request, Response]):
    """One stream of an upload that the test drives message by message."""

    def __init__(self, method: grpc.StreamStreamMultiCallable[Request, Response], *messages: Request) -> None:
        self._outgoing: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._call = method(iter(self._outgoing.get, None), timeout=SECONDS)
        self.send(*messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    def send(self, *messages: Request) -> None:
        """Put messages on the stream."""
        for message in messages:
            self._outgoing.put(message)

    def receive(self) -> Response:
        """The next answer."""
        return next(self._call)

    def has_ended(self) -> bool:
        """Whether it ended well, with nothing more to say."""
        return list(self._call) == []

    def half_close(self) -> None:
        """Say that there is no more to come."""
        self._outgoing.put(None)

    def abort(self) -> None:
        """Reset the stream, unless it has ended."""
        self._call.cancel()
        self._outgoing.put(None)

    def failure(self) -> Failure:
        """How the stream ends, after whatever answers are still to come; it has to fail."""
        try:
            answers = list(self._call)
        except grpc.RpcError as error:
            return failure_of(error)
        raise AssertionError(f"the stream did not fail; last answers: {answers[-1:]}")


class RawUpload(RawStream[pb.AddElementsRequest, pb.AddElementsResponse]):
    """One AddElements stream."""

    def __init__(self, stub: MembershipServiceStub, *messages: pb.AddElementsRequest) -> None:
        super().__init__(stub.AddElements, *messages)

    def opened(self) -> pb.UploadOpened:
        """The next answer, which has to be one to an open message."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "opened"
        return answer.opened

    def acknowledged(self) -> tuple[int, int]:
        """Batch and elements of the next answer, which has to be an acknowledgement."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "acknowledged"
        return answer.acknowledged.sequence, answer.acknowledged.elements

    def finished(self) -> int:
        """Elements of the next answer, which has to be the last."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "finished"
        assert self.has_ended()
        return answer.finished.elements


def upload(
    stub: MembershipServiceStub, set_name: str, batches: Sequence[Sequence[bytes]], upload_id: str = "upload"
) -> None:
    """A whole upload of raw elements."""
    messages = [raw_batch(number, batch) for number, batch in enumerate(batches, start=1)]
    count = sum(map(len, batches))
    with RawUpload(stub, open_upload(set_name, upload_id), *messages, finish(count)) as stream:
        stream.opened()
        for number in range(1, len(batches) + 1):
            assert stream.acknowledged()[0] == number
        assert stream.finished() == count
