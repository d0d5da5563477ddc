"""AddElements: one stream of an upload. Open, batches, finish; each is answered once it is on disk.

The use case is behind `Ingest`; here is the order of the messages, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilset.core.params import check_name
from veilset.core.release import wire
from veilset.errors import InvalidInput, OutOfSequence
from veilset.v1 import membership_pb2 as pb
from veilset_server.rpc.call import current_call
from veilset_server.rpc.shares import Shares
from veilset_server.usecases.element_session import MAX_BATCH_ELEMENTS, ElementSession
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.locks import KeyedLocks


class Uploads:
    """Serves the uploads of one server. ``shares`` bounds how many work at a time, and shares that out."""

    def __init__(self, ingest: Ingest, shares: Shares) -> None:
        self._ingest = ingest
        self._shares = shares
        self._turns = KeyedLocks()  # by set: who waits for a busy set must not hold a place

    def serve(self, requests: Iterator[pb.AddElementsRequest]) -> Iterator[pb.AddElementsResponse]:
        """Answer one stream. Whatever ends it, what was acknowledged stays for a resume."""
        first = next(requests, None)
        if first is None or first.WhichOneof("message") != "open":
            raise OutOfSequence("upload: the first message must be open", field="open")
        if first.open.operation not in (pb.OPERATION_UNSPECIFIED, pb.OPERATION_ADD):
            raise InvalidInput("operation", "add", first.open.operation)
        if first.open.part:
            raise InvalidInput("part", "0", first.open.part)
        call, set_name = current_call(), check_name("set_name", first.open.set_name)
        with self._turns[set_name], self._shares.place(call.key):
            session = self._ingest.open(set_name, first.open.upload_id, call.principal)
        try:
            yield pb.AddElementsResponse(opened=_opened(session))
            yield from self._content(session, requests, call.key)
        finally:
            self._ingest.close(session)

    def _content(
        self, session: ElementSession, requests: Iterator[pb.AddElementsRequest], key: str
    ) -> Iterator[pb.AddElementsResponse]:
        for request in requests:
            match request.WhichOneof("message"):
                case "batch":
                    with self._shares.place(key):
                        sequence, elements = _add(session, request.batch)
                    yield pb.AddElementsResponse(
                        acknowledged=pb.UploadAcknowledged(sequence=sequence, elements=elements)
                    )
                case "finish":
                    finish = request.finish
                    with self._turns[session.stored.description.name], self._shares.place(key):
                        count = self._ingest.finish(session, finish.count, finish.checksum)
                    yield pb.AddElementsResponse(finished=pb.UploadFinished(elements=count))
                    return
                case _:
                    raise OutOfSequence("upload: after open come batch messages, then finish", field="message")
        if not session.finished:  # a cut stream often looks like this too: without finish the end decides nothing
            raise OutOfSequence(
                "upload: the stream ended without finish; resume it with the same upload id", field="finish"
            )


def _opened(session: ElementSession) -> pb.UploadOpened:
    sequence, elements = session.position
    description = session.stored.description
    return pb.UploadOpened(
        sequence=sequence,
        elements=elements,
        hashing=wire.hashing_to_proto(description.filter.hashing),
        normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
        finished=session.finished,
        max_batch_elements=MAX_BATCH_ELEMENTS,
    )


def _add(session: ElementSession, batch: pb.Batch) -> tuple[int, int]:
    kind = batch.WhichOneof("content")
    if kind == "digests":
        return session.add_digests(batch.sequence, batch.digests)
    if kind == "elements":
        return session.add_elements(batch.sequence, list(batch.elements.values))
    raise InvalidInput("content", "elements or digests")
