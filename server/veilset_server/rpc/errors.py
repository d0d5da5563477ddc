"""What a failed call tells the caller: veilset's own errors in full, anything else as a fixed text.

The text of an unforeseen exception can hold elements, so it goes neither to the caller nor into the log; the log gets
its type and the places in the code it came through.
"""

from __future__ import annotations

import asyncio
import secrets
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from typing import NoReturn, TypeVar

import grpc
import structlog
from grpc_status import rpc_status

from veilset._service.rich_errors import to_status
from veilset.errors import FailedPrecondition, MinimumSizeUnproved, VeilsetError
from veilset_server.rpc.caller import refuse_for

log = structlog.get_logger(__name__)

Self = TypeVar("Self")
Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]


class InternalError(VeilsetError):
    """A fault of ours."""

    status = "INTERNAL"
    reason = "INTERNAL"


async def abort(context: grpc.aio.ServicerContext[Request, Response], error: BaseException) -> NoReturn:
    """End the call with ``error``'s status."""
    if not isinstance(error, VeilsetError):
        error = _conceal(error)
    # That a promised min_size is not proved depends on the elements, so the log does not tell it from other refusals.
    refuse_for(FailedPrecondition.reason if isinstance(error, MinimumSizeUnproved) else error.reason)
    try:
        await context.abort_with_status(rpc_status.to_status(to_status(error)))
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:  # the caller is gone: nobody is left to be told
        raise asyncio.CancelledError from None
    raise AssertionError("abort returned")


def _conceal(error: BaseException) -> VeilsetError:
    incident = secrets.token_hex(4)
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    log.error("internal error", incident=incident, kind=type(error).__name__, places=places)
    return InternalError(f"internal error, incident {incident}; the service's log has the place", incident=incident)


def unary(
    method: Callable[[Self, Request, grpc.aio.ServicerContext[Request, Response]], Awaitable[Response]],
) -> Callable[[Self, Request, grpc.aio.ServicerContext[Request, Response]], Awaitable[Response]]:
    """Wrap a unary handler so that its errors end the call as `abort` says."""

    @wraps(method)
    async def guarded(self: Self, request: Request, context: grpc.aio.ServicerContext[Request, Response]) -> Response:
        try:
            return await method(self, request, context)
        except Exception as error:  # noqa: BLE001 - nothing may pass by the table
            await abort(context, error)

    return guarded


def streaming(
    method: Callable[
        [Self, AsyncIterator[Request], grpc.aio.ServicerContext[Request, Response]], AsyncGenerator[Response, None]
    ],
) -> Callable[[Self, AsyncIterator[Request], grpc.aio.ServicerContext[Request, Response]], AsyncIterator[Response]]:
    """The same for a handler of two streams."""

    @wraps(method)
    async def guarded(
        self: Self, requests: AsyncIterator[Request], context: grpc.aio.ServicerContext[Request, Response]
    ) -> AsyncIterator[Response]:
        try:
            async with aclosing(method(self, requests, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:  # noqa: BLE001 - nothing may pass by the table
            await abort(context, error)

    return guarded
