"""AddElements' messages."""

from __future__ import annotations

from veilset.core.release import wire
from veilset.errors import InvalidInput
from veilset.v1 import membership_pb2 as pb
from veilset_server.principals import Principal
from veilset_server.rpc.upload import UploadKind
from veilset_server.usecases.element_session import MAX_BATCH_ELEMENTS, ElementSession
from veilset_server.usecases.ingest import Ingest


class ElementUpload(UploadKind[pb.AddElementsRequest, pb.AddElementsResponse, ElementSession]):
    """UploadKind of elements and digests."""

    content = "batch"

    def set_name(self, request: pb.AddElementsRequest) -> str:
        return request.open.set_name

    def open(self, ingest: Ingest, request: pb.AddElementsRequest, principal: Principal) -> ElementSession:
        if request.open.operation not in (pb.OPERATION_UNSPECIFIED, pb.OPERATION_ADD):
            raise InvalidInput("operation", "add", request.open.operation)
        if request.open.part:
            raise InvalidInput("part", "0", request.open.part)
        return ingest.open(request.open.set_name, request.open.upload_id, principal)

    def opened(self, session: ElementSession) -> pb.AddElementsResponse:
        sequence, elements = session.position
        description = session.stored.description
        return pb.AddElementsResponse(
            opened=pb.UploadOpened(
                sequence=sequence,
                elements=elements,
                hashing=wire.hashing_to_proto(description.filter.hashing),
                normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
                finished=session.finished,
                max_batch_elements=MAX_BATCH_ELEMENTS,
            )
        )

    def add(self, session: ElementSession, request: pb.AddElementsRequest) -> pb.AddElementsResponse:
        sequence, elements = _add(session, request.batch)
        return pb.AddElementsResponse(acknowledged=pb.UploadAcknowledged(sequence=sequence, elements=elements))

    def finish(self, ingest: Ingest, session: ElementSession, request: pb.AddElementsRequest) -> pb.AddElementsResponse:
        count = ingest.finish(session, request.finish.count, request.finish.checksum)
        return pb.AddElementsResponse(finished=pb.UploadFinished(elements=count))


def _add(session: ElementSession, batch: pb.Batch) -> tuple[int, int]:
    kind = batch.WhichOneof("content")
    if kind == "digests":
        return session.add_digests(batch.sequence, batch.digests)
    if kind == "elements":
        return session.add_elements(batch.sequence, list(batch.elements.values))
    raise InvalidInput("content", "elements or digests")
