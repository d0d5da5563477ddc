"""What callers without credentials can take of a service that asks for them: a health check, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.hostile_http2 import HEALTH, HostileConnection, framed
from harness.patience import SECONDS
from harness.programs import wait_until
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with
from veilset.v1 import membership_pb2 as pb
from veilset_server.rpc.allowances import PUBLIC_CALLS_PER_ADDRESS
from veilset_server.rpc.permissions import PERMISSIONS, Public
from veilset_server.rpc.server import served_methods
from veilset_server.rpc.serving import MAX_FOREIGN_BYTES

CALLS = 4
UNAUTHENTICATED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED = "16", "3", "8"
CANCELLED = "1"
"""What gRPC says of a call that was displaced before it was begun."""
FOREIGN = [method for method in served_methods() if not method.startswith("/veilset.") and method != HEALTH]
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 7)]

Starts = Callable[..., ServiceProcess]


@dataclass(frozen=True, slots=True)
class Scene:
    """A service whose common limit of calls is small, and a token for it."""

    service: ServiceProcess
    token: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One service for all."""
    state = tmp_path_factory.mktemp("unauthenticated") / "state"
    token = new_token(state, "admin")
    with running(ServiceProcess(state, ["--max-calls", str(CALLS), "--failed-attempts-per-minute", "1000"])) as service:
        yield Scene(service, token)


def status(scene: Scene, method: str, message: bytes, token: str | None = None) -> str:
    """How a call with one message ends."""
    with HostileConnection(scene.service.address, token) as connection:
        stream = connection.open(method)
        connection.send(stream, message, end=True)
        return connection.wait_for(stream)


@pytest.mark.parametrize("method", served_methods())
def test_only_a_health_check_needs_no_credentials(scene: Scene, method: str) -> None:
    """Every other method of every service on the port refuses, before a message comes."""
    with HostileConnection(scene.service.address) as connection:
        stream = connection.open(method)
        connection.flush()
        if isinstance(PERMISSIONS[method], Public):
            assert method == HEALTH
            connection.send(stream, framed(b""), end=True)
            assert connection.wait_for(stream) == "0"
        else:
            assert connection.wait_for(stream) == UNAUTHENTICATED


@pytest.mark.parametrize("length", [MAX_FOREIGN_BYTES, 1 << 20, (2 << 20) - 64])
@pytest.mark.parametrize("method", FOREIGN)
def test_long_messages_of_health_and_reflection(scene: Scene, method: str, length: int) -> None:
    """Refused by their length, with credentials as well: what those services keep of them is out of our hands."""
    message = health_pb2.HealthCheckRequest(service="x" * length).SerializeToString()
    if method.endswith("List"):
        message = b"\x0a" + message[1:]  # a field that it does not know, and would keep
    assert status(scene, method, framed(message), scene.token) == INVALID_ARGUMENT


def test_what_callers_without_credentials_send_is_not_kept(scene: Scene) -> None:
    """Whole and half messages of the length that gRPC allows, many at a time: answered without being read."""
    process = psutil.Process(scene.service.pid)
    before = process.memory_info().rss
    long = framed(b"", 2 << 20) + bytes((2 << 20) - 1)
    with ExitStack() as stack:
        connections = [stack.enter_context(HostileConnection(scene.service.address)) for _ in range(8)]
        for _ in range(16):
            for connection in connections:
                stream = connection.open(HEALTH)
                connection.send(stream, long)
                assert connection.wait_for(stream) == "0"
        assert process.memory_info().rss - before < 64 << 20


@pytest.mark.parametrize("auth", ["token", "off"])
def test_silent_health_checks_shut_out_no_other_caller(scene: Scene, auth: str, start_service: Starts) -> None:
    """From many addresses, as many as there may be at once and five times as many: a probe from another address and one from
    among them are answered, and so is a caller of another method, though the common limit of calls is four. None of the silent
    ones stays open, whether credentials are asked for or not."""
    service = scene.service if auth == "token" else start_service("--max-calls", CALLS)
    with ExitStack() as stack:
        connections = [
            stack.enter_context(HostileConnection(service.address, source=source))
            for source in ADDRESSES
            for _ in range(2)
        ]
        for connection in connections:
            for _ in range(PUBLIC_CALLS_PER_ADDRESS):
                connection.open(HEALTH)
            connection.flush()
        opened = len(connections) * PUBLIC_CALLS_PER_ADDRESS
        with grpc.insecure_channel(service.address) as channel, stub_with(service, scene.token) as stub:
            health = health_pb2_grpc.HealthStub(channel)
            for _ in range(20):
                assert health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS).status == 1
                stub.ListSets(pb.ListSetsRequest(), timeout=SECONDS)
        stream = connections[0].open(HEALTH)
        connections[0].send(stream, framed(b""), end=True)
        assert connections[0].wait_for(stream) == "0"

        def ended() -> int:
            for connection in connections:
                connection.read(0.0)
            return sum(len(connection.statuses) for connection in connections)

        # All are answered, but for the few that a burst displaced before it came to them.
        wait_until(lambda: ended() == opened + 1)
        codes = {code for connection in connections for code in connection.statuses.values()}
        assert codes <= {"0", CANCELLED, RESOURCE_EXHAUSTED}


SHORT_WATCHES = """
from veilset_server.rpc import serving
serving.WATCH_SECONDS = 1.0
from veilset.cli.main import main
main()
"""


def test_a_watch_is_one_of_its_callers_calls_and_ends(tmp_path: Path) -> None:
    """With a token it is served as before; then it has to be asked for again, with a token that still counts."""
    token = new_token(tmp_path / "state", "reader")
    with (
        running(ServiceProcess(tmp_path / "state", ["--max-calls", "2"], program=("-c", SHORT_WATCHES))) as service,
        grpc.insecure_channel(service.address) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        metadata = [("authorization", f"Bearer {token}")]
        watches = [health.Watch(health_pb2.HealthCheckRequest(), metadata=metadata) for _ in range(2)]
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        for watch in watches:
            with pytest.raises(grpc.RpcError) as ended:
                next(watch)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        with stub_with(service, token) as stub:
            stub.ListSets(pb.ListSetsRequest(), timeout=SECONDS)
