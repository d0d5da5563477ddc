"""The gate that every call passes, of every service on this port: who calls, how much, and whether that is allowed.

Calls are taken as streams, whatever they are, so that the gate stands before the first message: a caller without
credentials cannot make the service read one, a request that never comes meets a deadline, and each open call counts.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from veilset.errors import InvalidInput, Unavailable
from veilset_server.limits import exceeded
from veilset_server.principals import Principal
from veilset_server.rpc.allowances import PUBLIC_CALLS, Allowances
from veilset_server.rpc.caller import serve_for
from veilset_server.rpc.credentials import Connection, Credentials, connection_of, refusal
from veilset_server.rpc.errors import abort
from veilset_server.rpc.permissions import Permission, Public, check_role, check_sets, named_sets, permission

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Any  # grpc.RpcMethodHandler, whose attributes its type does not have
PUBLIC_SECONDS = 5.0
"""How long a call may take that needs no credentials: a health check, whose message comes with the call."""

WATCH_SECONDS = 300.0
"""How long a call may take that asks once and is answered again and again; then it asks again, with credentials that are
checked again."""

OWN_METHODS = "/veilset."
MAX_FOREIGN_BYTES = 256
"""Length of a message of another service's method (health, reflection), which names a service and no more. What such a
service keeps of a message is out of our hands."""


class Gate(grpc.aio.ServerInterceptor):
    """message_seconds: how long a caller may take to send a call's one message, and twice that for one of a stream (where
    the service has a closer deadline of its own)."""

    def __init__(self, credentials: Credentials, allowances: Allowances, message_seconds: float) -> None:
        self._credentials = credentials
        self._allowances = allowances
        self._message_seconds = message_seconds

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler behind the gate; None for a method that is not there."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method

        async def serve(requests: AsyncIterator[Message], context: Context) -> AsyncIterator[Message]:
            try:
                async with aclosing(self._serve(handler, method, requests, context)) as responses:
                    async for response in responses:
                        yield response
            except grpc.aio.AbortError:  # the handler has said how it ends
                raise
            except Exception as error:  # noqa: BLE001 - nothing may pass by the table
                await abort(context, error)

        gated: Any = grpc.stream_stream_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )
        gated.streams = handler.request_streaming or handler.response_streaming  # what it is behind the gate
        return gated

    async def _serve(
        self, handler: Any, method: str, requests: AsyncIterator[Message], context: Context
    ) -> AsyncGenerator[Message, None]:
        connection = connection_of(context)
        needed = permission(method)
        public = isinstance(needed, Public)
        principal = None if public else self._credentials.recognise(connection)
        key = f"principal {principal.name}" if principal is not None and principal.name else connection.address
        seconds, displaced = None, False
        if public:
            seconds = min(PUBLIC_SECONDS, self._message_seconds)
        elif handler.response_streaming and not handler.request_streaming:
            seconds = WATCH_SECONDS

        def displace() -> None:
            nonlocal displaced
            displaced = True
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())

        try:
            async with asyncio.timeout(seconds) as deadline:
                with self._allowances.public(key, displace) if public else self._allowances.call(key):
                    if principal is not None:
                        serve_for(principal)
                        check_role(principal, method)
                    argument: Any
                    if public and self._credentials.on:  # a stranger's message is not read, which would cost its length
                        argument = handler.request_deserializer(b"")
                    else:
                        streams = handler.request_streaming
                        messages = self._messages(method, principal, connection, requests, streams=streams)
                        argument = messages if streams else await _only(messages)
                    async with aclosing(_responses(handler, argument, context)) as responses:
                        async for response in responses:
                            yield response
        except TimeoutError:
            if not deadline.expired():
                raise
            if displaced:
                what = "calls without credentials: so many are open that the oldest ended"
                raise exceeded(what, "public_calls", PUBLIC_CALLS) from None
            raise Unavailable(f"call: not over after {seconds:g} s", kind="IDLE") from None

    async def _messages(
        self,
        method: str,
        principal: Principal | None,
        connection: Connection,
        requests: AsyncIterator[Message],
        *,
        streams: bool,
    ) -> AsyncIterator[Message]:
        """The caller's messages, each checked: what was revoked meanwhile, or narrowed, ends the call at the next one."""
        needed = permission(method)
        naming: Message | None = None  # the message that said which sets the call is about
        seconds = self._message_seconds * (2 if streams else 1)
        while (message := await _next(requests, seconds)) is not None:
            if not method.startswith(OWN_METHODS) and message.ByteSize() > MAX_FOREIGN_BYTES:
                raise InvalidInput("message", f"at most {MAX_FOREIGN_BYTES} bytes for this method", message.ByteSize())
            if principal is not None and isinstance(needed, Permission):
                now = self._credentials.check_again(connection)
                if now.name != principal.name:  # what the call holds is another's now
                    raise refusal()
                check_role(now, method)
                for named in (message, naming):
                    if named is not None:
                        check_sets(now, method, named)
                if naming is None or any(named_sets(needed, message)):
                    naming = message
            yield message


async def _next(requests: AsyncIterator[Message], seconds: float) -> Message | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(requests, None)
    except TimeoutError:
        raise Unavailable(f"call: no message came for {seconds:g} s", kind="IDLE") from None
    except DecodeError:
        raise InvalidInput("message", "a protobuf message of this method's type") from None


async def _only(messages: AsyncIterator[Message]) -> Message:
    message = await anext(messages, None)
    if message is None:
        raise InvalidInput("message", "given: the call ended without one")
    return message


async def _responses(handler: Any, argument: Any, context: Context) -> AsyncGenerator[Message, None]:
    """What the handler answers, whichever of gRPC's four kinds it is."""
    if handler.response_streaming:
        behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
        if not inspect.isasyncgenfunction(behaviour):  # it writes to the context itself
            await behaviour(argument, context)
            return
        async with aclosing(behaviour(argument, context)) as responses:
            async for response in responses:
                yield response
    else:
        behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
        yield await behaviour(argument, context)
