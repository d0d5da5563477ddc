"""One partial vector from the producer's side: send its chunks, and resume.

A producer that died resumes by giving the same upload id and the same vector again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from veilset._service.endpoint import Endpoint
from veilset._service.partial_vector import VectorChunks
from veilset._service.resumable import Piece, ResumableStream
from veilset.core.encodings.bloom.vector_digest import VectorDigest
from veilset.core.release import wire
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput
from veilset.v1 import membership_pb2_grpc
from veilset.v1 import merge_pb2 as pb


@dataclass(frozen=True, slots=True)
class MergeResult:
    """A finished merge. length: of the vector in bytes. resumed: chunks that the service held before this run."""

    upload_id: str
    length: int
    resumed: int


class Merge(ResumableStream[pb.MergeVectorRequest, pb.MergeVectorResponse, MergeResult]):
    """One merge of ``vector`` into a set; `run` sends it to the end.

    on_progress is called with the share of the vector, in [0, 1], that the service holds, and at the end with 1.
    """

    def __init__(
        self,
        stub: membership_pb2_grpc.MembershipServiceStub,
        target: Endpoint,
        set_name: str,
        upload_id: str,
        vector: VectorChunks,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        self._vector = vector
        self._length = vector.filter.vector_bytes
        self._count = -(-self._length // CHUNK_BYTES)
        self._upload_id = upload_id
        self._on_progress = on_progress
        self._digest = VectorDigest()
        self._resumed = 0
        opening = pb.OpenMerge(
            set_name=set_name,
            upload_id=upload_id,
            filter=wire.filter_to_proto(vector.filter),
            normalization=wire.to_number(wire.NORMALIZATION, vector.normalization),  # type: ignore[arg-type]
        )
        super().__init__(stub.MergeVector, target, pb.MergeVectorRequest(open=opening))

    def _begin(self, opened: pb.MergeVectorResponse) -> None:
        self._resumed = opened.opened.chunks

    def _number(self, response: pb.MergeVectorResponse) -> int:
        opened = response.WhichOneof("message") == "opened"
        return int(response.opened.chunks if opened else response.acknowledged.chunks)

    def _earlier_result(self, opened: pb.MergeVectorResponse) -> MergeResult | None:
        return MergeResult(self._upload_id, self._length, self._count) if opened.opened.finished else None

    def _pieces(self) -> Iterator[Piece[pb.MergeVectorRequest] | None]:
        for index, bits in self._vector.chunks():
            self._check(index, bits)
            self._digest.add(index, bits)
            if index < self._resumed:
                yield None
            else:
                chunk = pb.VectorChunk(index=index, bits=bits)
                yield Piece(index + 1, pb.MergeVectorRequest(chunk=chunk))

    def _check(self, index: int, bits: bytes) -> None:
        if not self._digest.chunks <= index < self._count:
            raise InvalidInput("index", f"rising, in [0, {self._count})", index)
        expected = min(CHUNK_BYTES, self._length - index * CHUNK_BYTES)
        if len(bits) != expected:
            raise InvalidInput("bits", f"{expected} bytes long in chunk {index}", len(bits))

    def _finish(self) -> pb.MergeVectorRequest:
        finish = pb.FinishMerge(length=self._length, sha256=self._digest.finish(self._length))
        return pb.MergeVectorRequest(finish=finish)

    def _result(self, finished: pb.MergeVectorResponse) -> MergeResult:
        if self._on_progress is not None:
            self._on_progress(1.0)
        return MergeResult(self._upload_id, int(finished.finished.length), self._resumed)

    def _progress(self, acknowledged: pb.MergeVectorResponse) -> None:
        if self._on_progress is not None:
            self._on_progress(acknowledged.acknowledged.chunks / self._count)
