"""An interceptor that lets observers (metrics, traces, the log) see each call begin and end.

It is the outermost one, so that calls which another interceptor refuses are seen too.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import structlog

from veilset_server.error_places import error_places

Metadata = Sequence[tuple[str, str | bytes]]
Handler = Any  # grpc.RpcMethodHandler, whose attributes its type does not have

log = structlog.get_logger(__name__)

OTHER = "other"
"""Label of methods that no service here has; their names are the caller's text."""


@dataclass(slots=True, eq=False)
class Call:
    """One call. ``label`` is its method's name if that is known, else `OTHER`; ``metadata`` is what the caller sent.

    set_name: as the caller gave it, so no more than a claim; None before the first message, and where there is none.
    """

    service: str
    label: str
    streaming: bool
    metadata: Metadata
    set_name: str | None = None
    _began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began


class CallObserver(Protocol):
    """Sees calls; may not wait. Methods run on the event loop; one that fails is logged, and the call goes on."""

    def started(self, call: Call) -> None:
        """A call began."""

    def opened(self, call: Call) -> None:
        """A stream got its first answer."""

    def ended(self, call: Call, code: grpc.StatusCode) -> None:
        """A call ended."""


class WatchingInterceptor(grpc.aio.ServerInterceptor):
    """Tells ``observers`` of all calls. methods: full names (/service/Method) that may be a label."""

    def __init__(self, observers: Collection[CallObserver], methods: Collection[str]) -> None:
        self._observers = tuple(observers)
        self._methods = frozenset(methods)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Wrap the call's handler."""
        handler = await continuation(details)
        service, _, name = details.method.removeprefix("/").partition("/")
        known = details.method in self._methods
        if handler is None:
            call = self._begin(Call(service if known else OTHER, OTHER, False, ()))
            self._end(call, grpc.StatusCode.UNIMPLEMENTED)
            return None
        # Behind the gate, which takes every call as a stream, the handler says itself what it is.
        streaming = bool(getattr(handler, "streams", handler.request_streaming or handler.response_streaming))

        def begin() -> Call:
            metadata = tuple(details.invocation_metadata or ())
            return self._begin(Call(service if known else OTHER, name if known else OTHER, streaming, metadata))

        return self._wrapped(handler, begin)

    def _wrapped(self, handler: Handler, begin: Callable[[], Call]) -> Handler:
        make, behaviour = _factory(handler)
        watched = self._watched_stream if handler.response_streaming else self._watched_unary
        return make(watched(behaviour, begin), handler.request_deserializer, handler.response_serializer)

    # gRPC asks of each whether it is a coroutine function or an asynchronous generator function; so these are made here.

    def _watched_unary(self, behaviour: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
        async def watched(request: Any, context: Any) -> Any:
            call, code = begin(), grpc.StatusCode.UNKNOWN
            noted = _noted(call, request)
            try:
                answer = await behaviour(noted, context)
                code = _status(context, grpc.StatusCode.OK)
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except BaseException as error:
                code = _status(context, grpc.StatusCode.UNKNOWN)
                _drop_frames(error)
                del request, context
                raise
            else:
                return answer
            finally:
                self._end(call, code)
                await _let_go(noted)
                del noted

        return watched

    def _watched_stream(self, behaviour: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
        async def watched(request: Any, context: Any) -> AsyncIterator[Any]:
            call, code = begin(), grpc.StatusCode.CANCELLED  # as when the generator is closed
            noted, first = _noted(call, request), True
            try:
                async with aclosing(_answers(behaviour, noted, context)) as answers:
                    async for answer in answers:
                        if first:
                            first = False
                            self._open(call)
                        yield answer
                code = _status(context, grpc.StatusCode.OK)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:
                code = _status(context, grpc.StatusCode.UNKNOWN)
                _drop_frames(error)
                del request, context
                raise
            finally:
                self._end(call, code)
                await _let_go(noted)
                del noted

        return watched

    def _open(self, call: Call) -> None:
        if call.streaming:
            self._tell(lambda observer: observer.opened(call))

    def _begin(self, call: Call) -> Call:
        self._tell(lambda observer: observer.started(call))
        return call

    def _end(self, call: Call, code: grpc.StatusCode) -> None:
        self._tell(lambda observer: observer.ended(call, code))

    def _tell(self, what: Callable[[CallObserver], None]) -> None:
        for observer in self._observers:
            try:
                what(observer)
            except Exception as error:  # noqa: BLE001 - gRPC would tell the caller its text, and end the call for it
                log.error("observer failed", kind=type(error).__name__, places=error_places(error))  # noqa: TRY400


def _factory(handler: Handler) -> tuple[Callable[..., Handler], Callable[..., Any]]:
    """What makes a handler of the same kind, and what the handler does."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


async def _answers(behaviour: Callable[..., Any], request: Any, context: Any) -> AsyncGenerator[Any, None]:
    """What a handler answers; one that writes to the context itself does that past us."""
    if not inspect.isasyncgenfunction(behaviour):
        await behaviour(request, context)
        return
    async with aclosing(behaviour(request, context)) as answers:
        async for answer in answers:
            yield answer


def _drop_frames(error: BaseException | None) -> None:
    """Forget the frames that an error came through, and those of what it came from. gRPC keeps the error of an aborted call with
    the call, and the frames have both the call and its messages: a circle, of megabytes, that stays until Python next looks
    for circles, which it does by the number of objects.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _status(context: Any, otherwise: grpc.StatusCode) -> grpc.StatusCode:
    """The status that was set on the context; grpc.aio has a number for it where it was set by an abort."""
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code if code is not grpc.StatusCode.OK else otherwise
    return _CODES.get(code, otherwise) if code else otherwise


def _noted(call: Call, request: Any) -> Any:
    """The request, or the stream of them, whose first message tells the set."""
    if not hasattr(request, "__anext__") and not hasattr(request, "__aiter__"):
        call.set_name = _set_name(request)
        return request
    return _NotedRequests(call, request)


class _NotedRequests:
    """A stream of requests, passed through."""

    def __init__(self, call: Call, requests: AsyncIterator[Any]) -> None:
        self._call = call
        self._asked = False
        self._requests = (
            requests  # grpc warns of an iterator that was begun and never asked, as of a call that is refused
        )

    def __aiter__(self) -> _NotedRequests:
        return self

    async def __anext__(self) -> Any:
        self._asked = True
        request = await anext(self._requests)
        if self._call.set_name is None:
            self._call.set_name = _set_name(request)
        return request

    async def aclose(self) -> None:
        """Let gRPC's iterator go: it keeps the last message, in a circle with itself, until it is closed."""
        iterator = aiter(self._requests) if self._asked else None
        if isinstance(iterator, AsyncGenerator):
            with suppress(RuntimeError):  # somebody is still waiting for the next message, and is being cancelled
                await iterator.aclose()


async def _let_go(noted: Any) -> None:
    if isinstance(noted, _NotedRequests):
        await noted.aclose()


def _set_name(request: Any) -> str:
    """The name of the set that a request is about; "" if it is about none."""
    opening = getattr(request, "open", request)
    return str(getattr(opening, "set_name", "") or getattr(opening, "name", ""))
