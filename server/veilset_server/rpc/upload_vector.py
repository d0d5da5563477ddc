"""MergeVector's messages."""

from __future__ import annotations

from veilset.core.release import wire
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput
from veilset.v1 import merge_pb2 as pb
from veilset_server.principals import Principal
from veilset_server.rpc.upload import UploadKind
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.vector_session import VectorSession


class VectorUpload(UploadKind[pb.MergeVectorRequest, pb.MergeVectorResponse, VectorSession]):
    """UploadKind of partial vectors."""

    content = "chunk"

    def set_name(self, request: pb.MergeVectorRequest) -> str:
        return request.open.set_name

    def open(self, ingest: Ingest, request: pb.MergeVectorRequest, principal: Principal) -> VectorSession:
        opening = request.open
        if not opening.HasField("filter"):
            raise InvalidInput("filter", "what the vector was built with")
        built_with = wire.filter_from_proto(opening.filter)
        normalization = wire.from_number("normalization", wire.NORMALIZATION, opening.normalization)
        return ingest.open_merge(opening.set_name, opening.upload_id, built_with, normalization, principal)

    def opened(self, session: VectorSession) -> pb.MergeVectorResponse:
        description = session.stored.description
        return pb.MergeVectorResponse(
            opened=pb.MergeOpened(
                chunks=session.chunks,
                filter=wire.filter_to_proto(description.filter),
                normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
                finished=session.finished,
                chunk_bytes=CHUNK_BYTES,
            )
        )

    def add(self, session: VectorSession, request: pb.MergeVectorRequest) -> pb.MergeVectorResponse:
        chunks = session.add_chunk(request.chunk.index, request.chunk.bits)
        return pb.MergeVectorResponse(acknowledged=pb.MergeAcknowledged(chunks=chunks))

    def finish(self, ingest: Ingest, session: VectorSession, request: pb.MergeVectorRequest) -> pb.MergeVectorResponse:
        length = ingest.finish(session, request.finish.length, request.finish.sha256)
        return pb.MergeVectorResponse(finished=pb.MergeFinished(length=length))
