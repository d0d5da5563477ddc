"""AddElements: one stream of an upload. Order of messages, idle deadline, acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from typing import TypeVar

import grpc

from veilset.core import wire
from veilset.errors import InvalidInput, OutOfSequence, Unavailable
from veilset.v1 import membership_pb2 as pb
from veilset_server.ingest import MAX_BATCH_ELEMENTS, Ingest, UploadSession

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[pb.AddElementsRequest, pb.AddElementsResponse]


class UploadStream:
    """Serves the uploads of one gRPC server. Work on elements runs in ``executor``, so that health and acks never wait.

    idle_seconds: how long a stream may stay silent; then it is aborted and can be resumed.
    """

    def __init__(self, ingest: Ingest, executor: Executor, idle_seconds: float) -> None:
        self._ingest = ingest
        self._executor = executor
        self._idle_seconds = idle_seconds
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Ask open streams to come back later: each ends after the batch in hand, resumable."""
        self._draining.set()

    async def serve(self, requests: AsyncIterator[pb.AddElementsRequest]) -> AsyncIterator[pb.AddElementsResponse]:
        """Answer one stream. Whatever ends it, what was acknowledged stays for a resume."""
        first = await self._next(requests)
        if first is None or first.WhichOneof("message") != "open":
            raise OutOfSequence("upload: the first message must be open", field="open")
        session = await self._run(self._ingest.open, first.open.set_name, first.open.upload_id)
        try:
            yield _opened(session)
            while not session.finished:
                request = await self._next(requests)
                if request is None:  # a cut stream often looks like this too: without finish the end decides nothing
                    raise OutOfSequence(
                        "upload: the stream ended without finish; resume it with the same upload id", field="finish"
                    )
                kind = request.WhichOneof("message")
                if kind == "batch":
                    sequence, elements = await self._run(_add, session, request.batch)
                    acknowledged = pb.UploadAcknowledged(sequence=sequence, elements=elements)
                    yield pb.AddElementsResponse(acknowledged=acknowledged)
                elif kind == "finish":
                    finish = request.finish
                    count = await self._run(self._ingest.finish, session, finish.count, finish.sha256)
                    yield pb.AddElementsResponse(finished=pb.UploadFinished(elements=count))
                    return
                else:
                    raise OutOfSequence("upload: after open come batches, then finish", field="message")
        finally:
            await asyncio.shield(self._run(self._ingest.close, session))

    async def _next(self, requests: AsyncIterator[pb.AddElementsRequest]) -> pb.AddElementsRequest | None:
        """The next message, None at the end. Raises Unavailable when the service drains or the stream idles."""
        message = asyncio.ensure_future(anext(requests, None))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((message, draining), timeout=self._idle_seconds, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            if draining.done():
                raise Unavailable("service: shutting down; resume the upload with the same upload id", kind="DRAINING")
            raise Unavailable(
                f"upload: silent for {self._idle_seconds:g} s; resume it with the same upload id", kind="IDLE"
            )
        finally:
            draining.cancel()
            message.cancel()

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)


def _add(session: UploadSession, batch: pb.Batch) -> tuple[int, int]:
    kind = batch.WhichOneof("content")
    if kind == "digests":
        return session.add_digests(batch.sequence, batch.digests)
    if kind == "elements":
        return session.add_elements(batch.sequence, list(batch.elements.values))
    raise InvalidInput("content", "elements or digests")


def _opened(session: UploadSession) -> pb.AddElementsResponse:
    sequence, elements = session.position
    description = session.stored.description
    return pb.AddElementsResponse(
        opened=pb.UploadOpened(
            sequence=sequence,
            elements=elements,
            filter=wire.filter_to_proto(description.filter),
            normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
            finished=session.finished,
            max_batch_elements=MAX_BATCH_ELEMENTS,
        )
    )
