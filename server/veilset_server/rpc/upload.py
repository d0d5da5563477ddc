"""AddElements: one stream of an upload. Open, batches, finish; each is answered once it is on disk.

The use case is behind `usecases.uploads.Uploads`; here is the order of the messages, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from veilset.core.params import (
    MAX_PART,
    HashParameters,
    Normalization,
    Operation,
    check_integer,
    check_name,
)
from veilset.core.release import wire
from veilset.errors import OutOfSequence, must_be
from veilset.v1 import membership_pb2 as pb
from veilset_server.records import UploadPart
from veilset_server.rpc.allowances import FairSlots
from veilset_server.rpc.call import current_call
from veilset_server.usecases.upload_session import MAX_BATCH_ELEMENTS, UploadSession
from veilset_server.usecases.uploads import Uploads

LONG_DIGESTS, LONG_ELEMENTS = 1 << 14, 64
"""Bytes of digests, and elements, above which a batch is a long one."""


class UploadCalls:
    """Serves the uploads of one server. ``shares`` bounds how many work at a time, and shares that out; long batches, which keep
    a processor busy, take a place of ``bulk`` in its stead, of which there are as few as processors."""

    def __init__(self, uploads: Uploads, shares: FairSlots, bulk: FairSlots) -> None:
        self._uploads = uploads
        self._shares = shares
        self._bulk = bulk

    def _place(self, key: str, batch: pb.Batch | pb.AddBatchRequest) -> AbstractContextManager[None]:
        is_long = len(batch.digests) > LONG_DIGESTS or len(batch.elements.values) > LONG_ELEMENTS
        return (self._bulk if is_long else self._shares).place(key)

    def serve(self, requests: Iterator[pb.AddElementsRequest]) -> Iterator[pb.AddElementsResponse]:
        """Answer one stream. Whatever ends it, what was acknowledged stays for a resume."""
        first = next(requests, None)
        if first is None or first.WhichOneof("message") != "open":
            raise OutOfSequence("upload: the first message must be open", field="open")
        call, opened = current_call(), first.open
        operation = wire.from_number("operation", wire.OPERATION, opened.operation, Operation.ADD)
        check_name("set_name", opened.set_name)
        with self._shares.place(call.key):
            session = self._uploads.open(opened.set_name, opened.upload_id, operation, opened.part, call.principal)
        try:
            yield pb.AddElementsResponse(opened=_opened(session))
            yield from self._content(session, requests, call.key)
        finally:
            self._uploads.close(session)

    def add_batch(self, request: pb.AddBatchRequest) -> pb.AddBatchResponse:
        """A whole small upload in one call."""
        call = current_call()
        operation = wire.from_number("operation", wire.OPERATION, request.operation, Operation.ADD)
        upload = check_name("set_name", request.set_name), request.upload_id, operation
        with self._place(call.key, request):
            match request.WhichOneof("content"):
                case "digests":
                    count = self._uploads.add_digests(*upload, request.digests, call.principal, _made_with(request))
                case "elements":
                    count = self._uploads.add_elements(*upload, request.elements.values, call.principal)
                case _:
                    raise must_be("content", "elements or digests")
        return pb.AddBatchResponse(elements=count)

    def _content(
        self, session: UploadSession, requests: Iterator[pb.AddElementsRequest], key: str
    ) -> Iterator[pb.AddElementsResponse]:
        for request in requests:
            match request.WhichOneof("message"):
                case "batch":
                    with self._place(key, request.batch):
                        sequence, elements = _add(session, request.batch)
                    yield pb.AddElementsResponse(
                        acknowledged=pb.UploadAcknowledged(sequence=sequence, elements=elements)
                    )
                case "finish":
                    finish = request.finish
                    check_integer("parts", len(finish.parts), 0, MAX_PART)
                    parts = [UploadPart(part.part, part.count, part.checksum) for part in finish.parts]
                    with self._shares.place(key):
                        count = self._uploads.finish(session, finish.count, finish.checksum, parts)
                    yield pb.AddElementsResponse(finished=pb.UploadFinished(elements=count))
                    return
                case _:
                    raise OutOfSequence("upload: after open come batch messages, then finish", field="message")
        if not session.finished:  # a cut stream often looks like this too: without finish the end decides nothing
            raise OutOfSequence(
                "upload: the stream ended without finish; resume it with the same upload id", field="finish"
            )


def _made_with(request: pb.AddBatchRequest) -> tuple[HashParameters, Normalization] | None:
    if not request.HasField("hashing"):
        return None
    normalization = wire.from_number("normalization", wire.NORMALIZATION, request.normalization, Normalization.NONE)
    return wire.hashing_from_proto(request.hashing), normalization


def _opened(session: UploadSession) -> pb.UploadOpened:
    sequence, elements = session.position
    description = session.stored.description
    return pb.UploadOpened(
        sequence=sequence,
        elements=elements,
        hashing=wire.hashing_to_proto(description.hashing),
        normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
        finished=session.finished,
        max_batch_elements=MAX_BATCH_ELEMENTS,
    )


def _add(session: UploadSession, batch: pb.Batch) -> tuple[int, int]:
    kind = batch.WhichOneof("content")
    if kind == "digests":
        return session.add_digests(batch.sequence, batch.digests)
    if kind == "elements":
        return session.add_elements(batch.sequence, batch.elements.values)
    raise must_be("content", "elements or digests")
