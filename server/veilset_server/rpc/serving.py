"""The interceptor that every call passes, of every service on this port: who calls, how much, whether that is allowed; and the
one place where errors become answers and observers (metrics, traces, the log) see calls begin and end.

Calls are taken as streams of bytes, whatever they are, so that all this stands before the first message: a caller without
credentials cannot make the service read one, a request that never comes meets a deadline, and each open call counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from veilset.errors import InvalidInput, LimitExceeded, PermissionDenied, Unavailable, VeilsetError, must_be
from veilset_server.process import error_places
from veilset_server.rpc.allowances import PUBLIC_CALLS, Allowances, FairSlots
from veilset_server.rpc.call import Call, CallOver, CallPool, OpenCalls, label_of, reserved_descriptors
from veilset_server.rpc.credentials import Connection, Credentials, connection_of, is_inside, refusal
from veilset_server.rpc.permissions import Permission, Public, check_role, check_sets, named_sets, permission
from veilset_server.settings import exceeded
from veilset_server.state.durability import check_descriptors, short_of, storage_errors

Handler = Any  # grpc.RpcMethodHandler, whose attributes its type does not have

OTHER = "other"
"""Label of methods that no service here has; their names are the caller's text."""

PUBLIC_SECONDS = 5.0
"""How long a call may take that needs no credentials: a health check, whose message comes with the call."""

WATCH_SECONDS = 300.0
"""How long a call may take that asks once and is answered again and again; then it asks again, with credentials that are
checked again."""

OWN_METHODS = "/veilset."
MAX_FOREIGN_BYTES = 256
"""Length of a message of another service's method (health, reflection), which names a service and no more. Our code
does not decide what such a service keeps of a message."""

SHORT_BYTES = 1 << 14
DECODERS = 4
"""Messages longer than that are decoded so many at a time, of one caller half."""

MAX_PARTS = 1 << 17
"""Entries of a repeated field: a batch has at most half as many elements."""

log = structlog.get_logger(__name__)


class Unimplemented(VeilsetError):
    """No service here has the method."""

    status = "UNIMPLEMENTED"
    reason = "UNIMPLEMENTED"


class InternalError(VeilsetError):
    """A fault of the service."""

    status = "INTERNAL"
    reason = "INTERNAL"


class CallObserver:
    """Is notified of calls, from many threads, and may not wait. If it fails, that is logged and the call continues."""

    def started(self, call: Call) -> None:
        """A call began; its first message was not read yet."""

    def opened(self, call: Call) -> None:
        """A stream was answered for the first time."""

    def ended(self, call: Call) -> None:
        """A call ended, as its ``code`` and ``reason`` say."""


class Serving(grpc.ServerInterceptor):
    """methods: full names (/service/Method) that may be a label. message_seconds: how long a caller may be silent where a
    message of it is waited for."""

    def __init__(
        self,
        credentials: Credentials,
        allowances: Allowances,
        calls: OpenCalls,
        pool: CallPool,
        observers: Collection[CallObserver],
        methods: Collection[str],
        message_seconds: float,
    ) -> None:
        self._credentials = credentials
        self._allowances = allowances
        self._calls = calls
        self._pool = pool
        self._observers = tuple(observers)
        self._methods = frozenset(methods)
        self._message_seconds = message_seconds
        self._decoders = FairSlots(DECODERS, DECODERS // 2)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """A handler of bytes around the call's own. Runs in the one thread that takes all calls in, so it does nothing more."""
        return grpc.stream_stream_rpc_method_handler(
            _Behaviour(self.serve, continuation(handler_call_details), handler_call_details)
        )

    def serve(
        self,
        handler: Handler,
        details: grpc.HandlerCallDetails,
        requests: Any,
        context: Any,
        write: Callable[..., None],
    ) -> None:
        """Serve one call to its end. Raises nothing."""
        call = self._call(handler, details, context)
        call.requests, call.write = requests, write
        if not is_inside(context):  # the service's own health checks are not observed
            call.ended = self._ended
            self._notify("started", call)
        try:
            with self._calls.open(call):
                self._serve(call, handler, details.method)
                call.end()
        except CallOver:
            call.end()
        except VeilsetError as error:
            call.end(error)
        except BaseException as error:  # noqa: BLE001 - nothing may pass by the table
            call.end(_shortage(error) or _conceal(error))

    def _call(self, handler: Handler, details: grpc.HandlerCallDetails, context: Any) -> Call:
        service, _, name = details.method.removeprefix("/").partition("/")
        known = handler is not None and details.method in self._methods
        return Call(
            service=service if known else OTHER,
            label=label_of(name) if known else OTHER,
            streaming=handler is not None and (handler.request_streaming or handler.response_streaming),
            metadata=tuple(details.invocation_metadata or ()),
            context=context,
            streams=handler is not None and handler.request_streaming,
        )

    def _ended(self, call: Call) -> None:
        self._notify("ended", call)

    def _notify(self, what: str, call: Call) -> None:
        for observer in self._observers:
            try:
                getattr(observer, what)(call)
            except Exception as error:  # noqa: BLE001 - it must not end the call
                log.error("observer failed", kind=type(error).__name__, places=error_places(error))  # noqa: TRY400

    def _serve(self, call: Call, handler: Handler, method: str) -> None:
        if handler is None:
            raise Unimplemented("method: no service here has it")
        connection = connection_of(call.context)
        public = isinstance(permission(method), Public)
        if is_inside(call.context) and not public:
            raise PermissionDenied("permission: this socket is for health checks only")
        if not public:
            call.principal = self._credentials.recognise(connection)
        call.key = f"principal {call.principal.name}" if call.principal.name else connection.address
        with ExitStack() as stack:
            if public:
                seconds = min(PUBLIC_SECONDS, self._message_seconds)
                stack.enter_context(call.within(seconds, _late(seconds)))
                what = "calls without credentials: so many are open that the oldest ended"
                displace = partial(call.end, exceeded(what, "public_calls", PUBLIC_CALLS))
                stack.enter_context(self._allowances.public(call.key, displace))
            else:
                if call.streaming:
                    self._check_room()
                if handler.response_streaming and not handler.request_streaming:
                    stack.enter_context(call.within(WATCH_SECONDS, _late(WATCH_SECONDS)))
                stack.enter_context(self._allowances.call(call.key, stream=call.streaming))
                check_role(call.principal, method)
            argument: Any
            messages = self._messages(call, method, connection, handler.request_deserializer)
            stack.enter_context(closing(messages))
            if public:  # its message is not read: that would cost its length, and a thread until it comes
                argument = handler.request_deserializer(b"")
            elif handler.request_streaming:
                argument = messages
            else:
                argument = _only(messages)
            self._answer(call, handler, argument)

    def _check_room(self) -> None:
        """Streams are refused first, so that what is left of a resource serves short calls and the ledger."""
        if self._pool.short:
            raise short_of("threads")
        check_descriptors(reserved_descriptors())

    def _answer(self, call: Call, handler: Handler, argument: Any) -> None:
        """Call the handler, whichever of gRPC's four kinds it is, and send what it answers."""
        if not handler.response_streaming:
            behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
            call.send(handler.response_serializer(behaviour(argument, call.context)))
            return
        behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
        responses = behaviour(argument, call.context)
        with closing(responses) if hasattr(responses, "close") else ExitStack():
            for number, response in enumerate(responses):
                if not number:
                    self._notify("opened", call)
                call.send(handler.response_serializer(response))
        if call.is_over:  # a watcher of health ends so when its caller is gone
            raise CallOver

    def _messages(
        self, call: Call, method: str, connection: Connection, decode: Callable[[bytes], Message]
    ) -> Generator[Message, None, None]:
        """The caller's messages, each checked: what was revoked meanwhile, or narrowed, ends the call at the next one."""
        needed = permission(method)
        naming: Message | None = None  # the message that said which sets the call is about
        while (received := call.receive(self._message_seconds)) is not None:
            if not method.startswith(OWN_METHODS) and len(received) > MAX_FOREIGN_BYTES:
                raise must_be("message", f"at most {MAX_FOREIGN_BYTES} bytes for this method", len(received))
            with self._allowances.message(call.key, len(received)):  # until it is handled
                message = self._decoded(call.key, decode, received)
                del received
                if isinstance(needed, Permission):
                    now = self._credentials.check_again(connection)
                    if now.name != call.principal.name:  # what the call holds is another's now
                        raise refusal()
                    check_role(now, method)
                    for named in (message, naming):
                        if named is not None:
                            check_sets(now, method, named)
                    if naming is None or any(named_sets(needed, message)):
                        naming = message
                if call.set_name is None:
                    call.set_name = _set_name(message)
                yield message
                del message

    def _decoded(self, key: str, decode: Callable[[bytes], Message], received: bytes) -> Message:
        """A message made of many small parts takes several times its bytes, so few long ones are decoded at a time, and what has
        too many parts is dropped at once."""
        with self._decoders.place(key) if len(received) > SHORT_BYTES else nullcontext():
            try:
                message = decode(received)
            except DecodeError:
                raise must_be("message", "a protobuf message of this method's type") from None
            _check_parts(message)
            return message


class _Behaviour:
    """What gRPC calls in a thread for one call; the attribute has it hand over the means to answer, which any thread may use."""

    experimental_non_blocking = True

    def __init__(self, serve: Callable[..., None], handler: Handler, details: grpc.HandlerCallDetails) -> None:
        self._serve = serve
        self._handler = handler
        self._details = details

    def __call__(self, requests: Any, context: Any, write: Callable[..., None]) -> None:
        self._serve(self._handler, self._details, requests, context, write)


def _late(seconds: float) -> Unavailable:
    return Unavailable(f"call: not over after {seconds:g} s", kind="IDLE")


def _check_parts(message: Message) -> None:
    """Raises InvalidInput naming a repeated field, however deep, that is longer than any may be."""
    for field, value in message.ListFields():
        if isinstance(value, Message):
            _check_parts(value)
        elif not isinstance(value, str | bytes | float) and hasattr(value, "__len__") and len(value) > MAX_PARTS:
            raise must_be(field.name, f"at most {MAX_PARTS} in a message", len(value))


def _only(messages: Iterator[Message]) -> Message:
    message = next(messages, None)
    if message is None:
        raise InvalidInput("message", "message is missing: the call ended without one")
    return message


def _set_name(request: Message) -> str:
    """The name of the set that a request is about; "" if it is about none."""
    opening = getattr(request, "open", request)
    return str(getattr(opening, "set_name", "") or getattr(opening, "name", ""))


def _shortage(error: BaseException) -> VeilsetError | None:
    """What the error means if the process is out of descriptors, memory or threads; such an error may come from anywhere."""
    if isinstance(error, MemoryError):
        return short_of("memory")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return short_of("threads")
    try:
        with storage_errors(""):
            raise error
    except LimitExceeded as short:
        return short
    except BaseException:  # noqa: BLE001 - it is concealed
        return None


def _conceal(error: BaseException) -> InternalError:
    """The text of an unforeseen exception can hold elements, so it goes neither to the caller nor into the log; the log gets its
    type and the places in the code it came through."""
    incident = secrets.token_hex(4)
    log.error("internal error", incident=incident, kind=type(error).__name__, places=error_places(error))
    return InternalError(f"internal error, incident {incident}; the service's log has the place", incident=incident)
