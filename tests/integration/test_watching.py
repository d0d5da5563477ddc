"""The interceptor on a real gRPC server: all four kinds of calls, and observers that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from harness.log_hooks import logs_left_alone
from veilset_server.metrics.logs import configure_logs
from veilset_server.rpc.watching import OTHER, Call, WatchingInterceptor

SERVICE = "test.Kinds"
KINDS = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")


class Seen:
    """An observer that keeps what it saw."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def started(self, call: Call) -> None:
        self.events.append(("started", call.label, ""))

    def opened(self, call: Call) -> None:
        self.events.append(("opened", call.label, ""))

    def ended(self, call: Call, code: grpc.StatusCode) -> None:
        self.events.append(("ended", call.label, code.name))


class Failing(Seen):
    """An observer whose every method fails with a text that must not come out."""

    def started(self, call: Call) -> None:
        raise ValueError("alice@example.org")

    opened = started

    def ended(self, call: Call, code: grpc.StatusCode) -> None:
        raise ValueError("alice@example.org")


async def one(request: Any, context: Any) -> bytes:
    """Answers one message; fails as it is told."""
    if not isinstance(request, bytes):
        request = b"".join([part async for part in request])
    if request == b"abort":
        await context.abort(grpc.StatusCode.ABORTED, "told to")
    if request == b"raise":
        raise RuntimeError("told to")
    return bytes(request)


async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
    """Answers twice, and fails behind that."""
    told = request if isinstance(request, bytes) else b"".join([part async for part in request])
    yield b"first"
    yield b"second"
    await one(told, context)


HANDLERS: dict[str, Any] = {
    "UnaryUnary": grpc.unary_unary_rpc_method_handler(one),
    "UnaryStream": grpc.unary_stream_rpc_method_handler(many),
    "StreamUnary": grpc.stream_unary_rpc_method_handler(one),
    "StreamStream": grpc.stream_stream_rpc_method_handler(many),
}


async def call(channel: grpc.aio.Channel, kind: str, told: bytes) -> None:
    """One call of a kind, to its end, however that is."""
    request_stream, response_stream = kind.startswith("Stream"), kind.endswith("Stream")
    name = ("stream" if request_stream else "unary") + ("_stream" if response_stream else "_unary")
    request: Any = iter([told]) if request_stream else told
    try:
        made = getattr(channel, name)(f"/{SERVICE}/{kind}")(request)
        if response_stream:
            assert [part async for part in made] == [b"first", b"second"]
        else:
            assert await made == told
    except grpc.aio.AioRpcError:
        assert told != b"well"


async def play(observers: list[Any]) -> None:
    """Every kind, well, aborted and with an exception; and a method that is not there."""
    methods = [f"/{SERVICE}/{kind}" for kind in KINDS[:3]]
    server = grpc.aio.server(interceptors=[WatchingInterceptor(observers, methods)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, HANDLERS),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for told in (b"well", b"abort", b"raise"):
            for kind in KINDS:
                await call(channel, kind, told)
        absent: Any = channel.unary_unary(f"/{SERVICE}/Absent")
        with pytest.raises(grpc.aio.AioRpcError):
            await absent(b"well")
    await server.stop(None)


def test_every_kind_is_seen_to_begin_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    """With its status; streams with their first answer between; methods that are not told beforehand by no name."""
    seen = Seen()
    with logs_left_alone():
        configure_logs()
        asyncio.run(play([seen]))
    capsys.readouterr()
    expected = []
    for status in ("OK", "ABORTED", "UNKNOWN"):
        for kind in KINDS:
            label = kind if kind != "StreamStream" else OTHER
            opened = [("opened", label, "")] if kind.endswith("Stream") else []
            expected += [("started", label, ""), *opened, ("ended", label, status)]
    assert seen.events == [*expected, ("started", OTHER, ""), ("ended", OTHER, "UNIMPLEMENTED")]


def test_an_observer_that_fails_fails_no_call(capsys: pytest.CaptureFixture[str]) -> None:
    """It is logged, without its text, and the others go on to see."""
    seen = Seen()
    with logs_left_alone():
        configure_logs()
        asyncio.run(play([Failing(), seen]))
    assert len(seen.events) == 2 * 13 + 6
    told = capsys.readouterr().err
    assert "alice" not in told
    assert {json.loads(line)["event"] for line in told.splitlines()} >= {"observer failed"}
