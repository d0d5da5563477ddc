"""One stream of an upload, of elements or of a vector. Order of messages, idle deadline, acknowledgements.

What the two kinds of stream do not share, an `UploadKind` has: `upload_elements`, `upload_vector`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from veilset.core.params import check_name
from veilset.errors import OutOfSequence
from veilset_server.principals import Principal
from veilset_server.rpc.caller import current_principal
from veilset_server.rpc.streams import ClientStreams
from veilset_server.rpc.turns import Turns
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.upload_session import UploadSession


class OneofMessage(Protocol):
    """A request: its one field is named by ``message``."""

    def WhichOneof(self, oneof_group: Any, /) -> Any:  # noqa: N802 - protobuf's name
        """Which field is set."""


Result = TypeVar("Result")
Request = TypeVar("Request", bound=OneofMessage)
Response = TypeVar("Response")
Session = TypeVar("Session", bound=UploadSession[Any])


class UploadKind(ABC, Generic[Request, Response, Session]):
    """One kind of upload, on messages of its own. `open`, `add` and `finish` work on files, and run in a worker thread."""

    content: ClassVar[str]
    """Name of the message between open and finish."""

    @abstractmethod
    def set_name(self, request: Request) -> str:
        """The set that an open message names."""

    @abstractmethod
    def open(self, ingest: Ingest, request: Request, principal: Principal) -> Session:
        """Open or resume an upload of the principal's."""

    @abstractmethod
    def opened(self, session: Session) -> Response:
        """The answer to that."""

    @abstractmethod
    def add(self, session: Session, request: Request) -> Response:
        """Hold what the message brings; the acknowledgement."""

    @abstractmethod
    def finish(self, ingest: Ingest, session: Session, request: Request) -> Response:
        """Make it part of the set; the last answer."""


class UploadStream:
    """Serves the uploads of one gRPC server. Work on elements runs in ``executor``, so that health and acks never wait.

    streams: what ends a stream that is silent, or whose service stops.
    """

    def __init__(self, ingest: Ingest, executor: Executor, streams: ClientStreams) -> None:
        self._ingest = ingest
        self._executor = executor
        self._streams = streams
        self._turns = Turns()

    async def serve(
        self, requests: AsyncIterator[Request], kind: UploadKind[Request, Response, Session]
    ) -> AsyncGenerator[Response, None]:
        """Answer one stream. Whatever ends it, what was acknowledged stays for a resume."""
        first = await self._streams.next(requests)
        if first is None or first.WhichOneof("message") != "open":
            raise OutOfSequence("upload: the first message must be open", field="open")
        with self._streams.open():
            session = await self._open(kind, first)
            try:
                yield kind.opened(session)
                if session.finished:
                    return
                with _ReadAhead(partial(self._streams.next, requests)) as ahead:
                    while (request := await ahead.next()) is not None:
                        name = request.WhichOneof("message")
                        if name == "finish":
                            finish = partial(self._run, kind.finish, self._ingest, session, request)
                            yield await self._turns.hold(session.stored.description.name, finish)
                            return
                        if name != kind.content:
                            raise OutOfSequence(
                                f"upload: behind open come {kind.content} messages, then finish", field="message"
                            )
                        ahead.start()
                        yield await self._run(kind.add, session, request)
                # A cut stream often looks like this too: without finish the end decides nothing.
                raise OutOfSequence(
                    "upload: the stream ended without finish; resume it with the same upload id", field="finish"
                )
            finally:
                await asyncio.shield(self._run(self._ingest.close, session))

    async def _open(self, kind: UploadKind[Request, Response, Session], first: Request) -> Session:
        """A stream that is cut meanwhile lets go of what the thread still opens."""
        async with self._turns.of(check_name("set_name", kind.set_name(first))):
            opening = asyncio.ensure_future(self._run(kind.open, self._ingest, first, current_principal()))
            try:
                return await asyncio.shield(opening)
            except asyncio.CancelledError:
                with suppress(Exception):  # nobody is there to be told
                    await self._run(self._ingest.close, await opening)
                raise

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)


class _ReadAhead(Generic[Request]):
    """Receives the next message of a stream while the one before is worked on; a context manager, at whose end it stops."""

    def __init__(self, receive: Callable[[], Coroutine[Any, Any, Request | None]]) -> None:
        self._receive = receive
        self._coming: asyncio.Task[Request | None] | None = None

    def start(self) -> None:
        """Begin to wait for the next message."""
        self._coming = asyncio.ensure_future(self._receive())
        self._coming.add_done_callback(_retrieve)

    async def next(self) -> Request | None:
        """The next message; None at the end. Raises what receiving it raises."""
        coming, self._coming = self._coming, None
        return await (self._receive() if coming is None else coming)

    def __enter__(self) -> _ReadAhead[Request]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._coming is not None:
            self._coming.cancel()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A failure that nobody asks for any more, as the stream ended by another one, is no event for asyncio's log."""
    if not task.cancelled():
        task.exception()
