"""MergeVector without the library in between: hand-driven streams of chunks."""

from __future__ import annotations

import hashlib

from harness.raw_calls import RawStream
from veilset.core.params import FilterParameters, Normalization
from veilset.core.release import wire
from veilset.core.release.header import CHUNK_BYTES
from veilset.v1 import merge_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


def open_merge(
    set_name: str, upload_id: str, shape: FilterParameters, profile: Normalization = Normalization.NONE
) -> pb.MergeVectorRequest:
    """An open message."""
    normalization = wire.to_number(wire.NORMALIZATION, profile)
    opening = pb.OpenMerge(
        set_name=set_name,
        upload_id=upload_id,
        filter=wire.filter_to_proto(shape),
        normalization=normalization,  # type: ignore[arg-type]
    )
    return pb.MergeVectorRequest(open=opening)


def chunk(vector: bytes, index: int) -> pb.MergeVectorRequest:
    """Chunk ``index`` of a packed vector."""
    bits = vector[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
    return pb.MergeVectorRequest(chunk=pb.VectorChunk(index=index, bits=bits))


def finish_merge(vector: bytes, length: int | None = None) -> pb.MergeVectorRequest:
    """A finish message for that vector; ``length``: another one than its own."""
    told = len(vector) if length is None else length
    return pb.MergeVectorRequest(finish=pb.FinishMerge(length=told, sha256=hashlib.sha256(vector).digest()))


class RawMerge(RawStream[pb.MergeVectorRequest, pb.MergeVectorResponse]):
    """One MergeVector stream."""

    def __init__(self, stub: MembershipServiceStub, *messages: pb.MergeVectorRequest) -> None:
        super().__init__(stub.MergeVector, *messages)

    def opened(self) -> pb.MergeOpened:
        """The next answer, which has to be one to an open message."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "opened"
        return answer.opened

    def acknowledged(self) -> int:
        """Chunks of the next answer, which has to be an acknowledgement."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "acknowledged"
        return answer.acknowledged.chunks

    def finished(self) -> int:
        """Length in the next answer, which has to be the last."""
        answer = self.receive()
        assert answer.WhichOneof("message") == "finished"
        assert self.has_ended()
        return answer.finished.length
