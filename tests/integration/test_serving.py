"""The interceptor on a real gRPC server: all four kinds of calls, how they end from outside, observers that fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from harness.log_hooks import logs_left_alone
from harness.programs import wait_until
from veilset._service.endpoint import make_endpoint
from veilset._service.errors import from_rpc_error
from veilset.errors import NotFound, Unavailable
from veilset_server.metrics.logs import configure_logs
from veilset_server.principals import AuthMode, Role
from veilset_server.rpc import serving
from veilset_server.rpc.allowances import Allowances
from veilset_server.rpc.call import Call, CallOver, CallPool, OpenCalls, current_call
from veilset_server.rpc.credentials import Credentials
from veilset_server.rpc.permissions import PERMISSIONS, Permission
from veilset_server.rpc.serving import OTHER, Serving
from veilset_server.settings import Limits
from veilset_server.state.entropy import SystemClock

SERVICE = "test.Kinds"
KINDS = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")
SECONDS = 30.0


class Seen:
    """An observer that keeps what it saw."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def started(self, call: Call) -> None:
        self.events.append(("started", call.label, ""))

    def opened(self, call: Call) -> None:
        self.events.append(("opened", call.label, ""))

    def ended(self, call: Call) -> None:
        self.events.append(("ended", call.label, call.code.name))


class Failing(Seen):
    """An observer whose every method fails with a text that must not come out."""

    def started(self, call: Call) -> None:
        raise ValueError("alice@example.org")

    opened = started
    ended = started


def one(request: Any, context: Any) -> StringValue:
    """Answers one message; fails as it is told."""
    told = request.value if isinstance(request, StringValue) else "".join(part.value for part in request)
    if told == "refuse":
        raise NotFound("thing: not there")
    if told == "raise":
        raise RuntimeError("alice@example.org")
    return StringValue(value=told)


def many(request: Any, context: Any) -> Iterator[StringValue]:
    """Answers twice, and fails behind that."""
    told = request if isinstance(request, StringValue) else StringValue(value="".join(part.value for part in request))
    yield StringValue(value="first")
    yield StringValue(value="second")
    one(told, context)


class Server:
    """A server of the four kinds behind the interceptor, and what ended in it. ``released`` counts streams that let go."""

    def __init__(self, folder: Path, observers: list[Any], idle_seconds: float = SECONDS) -> None:
        credentials = Credentials(AuthMode.NONE, folder, None, SystemClock(), failed_per_minute=10)
        self.calls = OpenCalls()
        self.released = 0
        methods = [f"/{SERVICE}/{kind}" for kind in KINDS[:3]]
        self.pool = CallPool(40, 4)
        allowances = Allowances(Limits())
        interceptor = Serving(credentials, allowances, self.calls, self.pool, observers, methods, idle_seconds)
        self.server = grpc.server(self.pool, interceptors=[interceptor])  # type: ignore[arg-type]
        make = (
            grpc.unary_unary_rpc_method_handler,
            grpc.unary_stream_rpc_method_handler,
            grpc.stream_unary_rpc_method_handler,
            grpc.stream_stream_rpc_method_handler,
        )
        coded: dict[str, Any] = {
            "request_deserializer": StringValue.FromString,
            "response_serializer": StringValue.SerializeToString,
        }
        behaviours: tuple[Callable[..., Any], ...] = (one, many, one, many)
        handlers: dict[str, Any] = {
            kind: wrap(behave, **coded) for kind, wrap, behave in zip(KINDS, make, behaviours, strict=True)
        }
        handlers["Echo"] = grpc.stream_stream_rpc_method_handler(self.echo, **coded)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def echo(self, requests: Iterator[StringValue], context: Any) -> Iterator[StringValue]:
        """Answers each message; "hang" is answered when the call is over."""
        try:
            for request in requests:
                while request.value == "hang" and not current_call().is_over:
                    time.sleep(0.01)
                yield request
        finally:
            self.released += 1


@contextmanager
def served(folder: Path, observers: list[Any], idle_seconds: float = SECONDS) -> Iterator[tuple[Server, grpc.Channel]]:
    """The server, and a channel to it."""
    made = Server(folder, observers, idle_seconds)
    with pytest.MonkeyPatch.context() as patch, made.calls:
        for kind in (*KINDS, "Echo"):
            patch.setitem(PERMISSIONS, f"/{SERVICE}/{kind}", Permission(frozenset(Role)))
        patch.setattr(serving, "OWN_METHODS", "/")
        made.server.start()
        with grpc.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            yield made, channel
        made.server.stop(0).wait()
        assert made.calls.closed(SECONDS)


def call(channel: grpc.Channel, kind: str, told: str) -> None:
    """One call of a kind, to its end, however that is."""
    request_stream, response_stream = kind.startswith("Stream"), kind.endswith("Stream")
    name = ("stream" if request_stream else "unary") + ("_stream" if response_stream else "_unary")
    message = StringValue(value=told).SerializeToString()
    try:
        made = getattr(channel, name)(f"/{SERVICE}/{kind}")(iter([message]) if request_stream else message)
        if response_stream:
            assert [StringValue.FromString(part).value for part in made] == ["first", "second"]
        else:
            assert made == message
    except grpc.RpcError:
        assert told != "well"


class Talk:
    """An open call of Echo, of which messages are said one by one."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._said: list[str | None] = []
        self._changed = threading.Condition()
        calls: Any = channel.stream_stream(f"/{SERVICE}/Echo")
        self.call = calls(self._messages())

    def _messages(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._said)
                word = self._said.pop(0)
            if word is None:
                return
            yield StringValue(value=word).SerializeToString()

    def say(self, word: str | None) -> None:
        """One more message; None is the end."""
        with self._changed:
            self._said.append(word)
            self._changed.notify()

    def hear(self) -> str:
        """The next answer."""
        return StringValue.FromString(next(self.call)).value

    def end(self) -> Any:
        """The error that the call ends with, whatever is answered before."""
        with pytest.raises(grpc.RpcError) as ended:
            list(self.call)
        self.say(None)
        return from_rpc_error(ended.value, make_endpoint("127.0.0.1:1"))


def test_every_kind_is_seen_to_begin_and_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its status; streams with their first answer between; methods that are not told beforehand by no name."""
    seen = Seen()
    with logs_left_alone():
        configure_logs()
        with served(tmp_path, [seen]) as (_, channel):
            for told in ("well", "refuse", "raise"):
                for kind in KINDS:
                    call(channel, kind, told)
            absent: Any = channel.unary_unary(f"/{SERVICE}/Absent")
            with pytest.raises(grpc.RpcError) as ended:
                absent(b"")
            assert ended.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "alice" not in capsys.readouterr().err
    expected = []
    for status in ("OK", "NOT_FOUND", "INTERNAL"):
        for kind in KINDS:
            label = kind if kind != "StreamStream" else OTHER
            opened = [("opened", label, "")] if kind.endswith("Stream") else []
            expected += [("started", label, ""), *opened, ("ended", label, status)]
    assert seen.events == [*expected, ("started", OTHER, ""), ("ended", OTHER, "UNIMPLEMENTED")]


def test_an_observer_that_fails_fails_no_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is logged, without its text, and the others go on to see."""
    seen = Seen()
    with logs_left_alone():
        configure_logs()
        with served(tmp_path, [Failing(), seen]) as (_, channel):
            for kind in KINDS:
                call(channel, kind, "well")
    assert len(seen.events) == 2 * 4 + 2
    told = capsys.readouterr().err
    assert "alice" not in told
    assert {json.loads(line)["event"] for line in told.splitlines()} == {"observer failed"}


def test_silence_ends_a_stream_and_frees_its_thread(tmp_path: Path) -> None:
    """It can be resumed: Unavailable, IDLE."""
    with served(tmp_path, [], idle_seconds=0.3) as (server, channel):
        talk = Talk(channel)
        talk.say("a")
        assert talk.hear() == "a"
        error = talk.end()
        assert isinstance(error, Unavailable)
        assert error.details["kind"] == "IDLE"
        wait_until(lambda: server.released == 1)


def test_draining_ends_silent_streams_and_lets_busy_ones_go_on(tmp_path: Path) -> None:
    """A silent one at once; one whose producer keeps sending may reach its end."""
    with served(tmp_path, []) as (server, channel):
        silent, busy = Talk(channel), Talk(channel)
        for talk in (silent, busy):
            talk.say("a")
            assert talk.hear() == "a"
        for _ in range(50):
            busy.say("b")
        busy.say(None)
        server.calls.drain(SECONDS)
        assert silent.end().details["kind"] == "DRAINING"
        assert [busy.hear() for _ in range(50)] == ["b"] * 50
        with pytest.raises(StopIteration):
            busy.hear()


def test_no_stream_goes_on_beyond_the_drain_time(tmp_path: Path) -> None:
    """Even one whose producer never pauses."""
    with served(tmp_path, []) as (server, channel):
        talk = Talk(channel)
        talk.say("a")
        assert talk.hear() == "a"
        server.calls.drain(-1.0)
        talk.say("b")
        assert talk.end().details["kind"] == "DRAINING"


def test_a_caller_who_goes_away_frees_its_thread(tmp_path: Path) -> None:
    """Also while the handler is at work; the call is seen to be cancelled."""
    seen = Seen()
    with served(tmp_path, [seen]) as (server, channel):
        waiting, working = Talk(channel), Talk(channel)
        for talk in (waiting, working):
            talk.say("a")
            assert talk.hear() == "a"
        working.say("hang")
        for talk in (waiting, working):
            talk.call.cancel()
        wait_until(lambda: server.released == 2)
        wait_until(lambda: sum(event[0] == "ended" for event in seen.events) == 2)
        ends = {event[2] for event in seen.events if event[0] == "ended"}
        assert ends <= {"CANCELLED", "OK"}  # gRPC may show a waiting handler the end of the stream first
        for talk in (waiting, working):
            talk.say(None)


def test_only_the_first_end_counts() -> None:
    """The second one finds the call over."""

    class Context:
        codes: list[object] = []  # noqa: RUF012

        def is_active(self) -> bool:
            return True

        def set_code(self, code: object) -> None:
            self.codes.append(code)

        def set_details(self, _: object) -> None: ...

        def set_trailing_metadata(self, _: object) -> None: ...

    ends: list[Call] = []
    ended = Call("s", "m", False, (), context=Context(), ended=ends.append)
    ended.end(NotFound("thing: not there"))
    ended.end(Unavailable("late: too late"))
    assert ended.code is grpc.StatusCode.NOT_FOUND
    assert ends == [ended]
    assert len(Context.codes) == 1
    with pytest.raises(CallOver):
        ended.send(b"")
