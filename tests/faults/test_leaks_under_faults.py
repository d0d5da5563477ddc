"""Marked elements down every path while all around them breaks: Redis, the disk, the process itself. Nothing of them comes out
in the log, a crash dump, metrics, traces, answers, Redis or the rest of the state folder.

`tests/e2e/test_nothing_leaks.py` does the same for what callers can do wrong.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from harness.full_disk import fill_up, small_disk
from harness.leaks import Seen, shared_windows
from harness.metrics import samples as parsed
from harness.metrics import scrape_text, value
from harness.programs import veilset, wait_until
from harness.raw_calls import RawUpload, digest_batch, finish, hashed, open_upload, raw_batch
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.shapes import bloom
from harness.span_receiver import SpanReceiver
from harness.vectors import raw_vector, redis_content
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

MARK = f"mark{secrets.token_hex(8)}".encode()
SIZES = (7919, 6133)
SENT = sum(SIZES)
DISK_BYTES = 4 << 20
SECRET_FILES = ("spools/", "runs/", "ledger.db")
"""Of the state folder: where digests are. All else has to be free of them."""


@dataclass(slots=True)
class World:
    """callers: what callers got; operators: log, crash dumps, metrics, traces; folder: the state folder's other files."""

    process: ServiceProcess
    redis: RedisServer
    disk: Path
    callers: Seen = field(default_factory=Seen)
    operators: Seen = field(default_factory=Seen)
    folder: Seen = field(default_factory=Seen)
    statuses: list[str] = field(default_factory=list)
    scrapes: list[str] = field(default_factory=list)
    shown: dict[str, bytes] = field(default_factory=dict)
    span_names: set[str] = field(default_factory=set)
    raw: bytes = b""
    seed: int = 0

    def scrape(self) -> None:
        """Take down the metrics as they are now."""
        self.scrapes.append(scrape_text(self.process.metrics))

    def publish(self, stub: MembershipServiceStub, request_id: str) -> None:
        """One try."""
        request = pb.PublishReleaseRequest(set_name="members", request_id=request_id)
        self.statuses.append(self.callers.unary(stub.PublishRelease, request))


def elements(start: int, count: int) -> list[bytes]:
    """Elements that bear the mark."""
    return [b"%s-%d@example.org" % (MARK, number) for number in range(start, start + count)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The scenario, played once."""
    folder = tmp_path_factory.mktemp("leaks")
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", DISK_BYTES))
        redis = RedisServer(folder / "redis", password="hush")  # noqa: S106 - to be looked for
        stack.callback(redis.stop)
        receiver = stack.enter_context(SpanReceiver())
        options = ["--redis", redis.start().url, "--metrics-port", "0", "--otlp-endpoint", receiver.endpoint]
        options += ["--log-level", "debug", "--reconcile-seconds", "0.3", "--redis-timeout-seconds", "0.5"]
        options += ["--publish-wait-seconds", "0.3", "--idle-seconds", "2"]
        process = ServiceProcess(disk / "state", options, ["-X", "faulthandler", "-m", "veilset"])
        process.log_path = folder / "service.log"
        stack.callback(process.end)
        process.start()
        found = World(process, redis, disk)
        play(found, folder)
        collect(found, receiver)
        yield found


def play(world: World, folder: Path) -> None:
    """Everything that is done to it."""
    with world.process.stub() as stub:
        fill(world, stub)
        break_redis(world, stub)
        fill_the_disk(world, stub)
        misbehave(world, stub)
    end_it(world, signal.SIGKILL)
    end_it(world, signal.SIGABRT)
    with world.process.stub() as stub:
        world.publish(stub, "after")
        world.scrape()
    run_commands(world, folder)
    world.process.terminate()
    assert world.process.wait() == 0


def fill(world: World, stub: MembershipServiceStub) -> None:
    """A set, two uploads and a release."""
    promise = parameters_pb2.PrivacyParameters(epsilon=1.0, delta=1e-9, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)
    request = pb.CreateSetRequest(
        name="members", size=20_000, privacy=promise, encoding=bloom(1 << 16, 1), budget_epsilon=9
    )
    request.allow_poor_utility = True
    world.statuses.append(world.callers.unary(stub.CreateSet, request))
    world.seed = stub.GetSet(pb.GetSetRequest(name="members")).set.hashing.seed
    first, second = elements(0, SIZES[0]), elements(SIZES[0], SIZES[1])
    packed = hashed(second, world.seed)
    for messages in (
        [open_upload("members", "raw"), raw_batch(1, first), finish(len(first))],
        [open_upload("members", "digests"), digest_batch(1, packed), finish(len(second), packed)],
    ):
        world.statuses.append(world.callers.stream(stub.AddElements, *messages))
    world.publish(stub, "one")
    world.scrape()


def break_redis(world: World, stub: MembershipServiceStub) -> None:
    """Full, forbidding, gone."""
    redis = world.redis
    for breaking, mending in (
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("ACL", "SETUSER", "default", "-set"), ("ACL", "SETUSER", "default", "+set")),
    ):
        redis.command(*breaking)
        world.publish(stub, breaking[0])
        world.scrape()
        redis.command(*mending)
    redis.stop()
    world.publish(stub, "gone")
    world.scrape()
    redis.start()
    wait_until(lambda: redis.command("EXISTS", "veilset:members:latest") == 1)


def fill_the_disk(world: World, stub: MembershipServiceStub) -> None:
    """In the middle of an upload; a publish too."""
    with RawUpload(stub, open_upload("members", "full"), raw_batch(1, elements(0, 500))) as upload:
        world.callers.message(upload.receive())
        world.callers.message(upload.receive())
        ballast = fill_up(world.disk)
        upload.send(raw_batch(2, elements(500, 9000)))
        world.statuses.append(upload.failure().code)
    world.publish(stub, "no space")
    world.scrape()
    ballast.unlink()


def misbehave(world: World, stub: MembershipServiceStub) -> None:
    """Metadata, names, messages and services that are full of the mark; a stream that goes silent."""
    call = stub.GetSet(pb.GetSetRequest(name="members"), metadata=(("x-note", MARK), ("traceparent", MARK.decode())))
    world.callers.message(call)
    with grpc.insecure_channel(world.process.address) as channel:
        checked = health_pb2_grpc.HealthStub(channel)
        world.statuses.append(world.callers.unary(checked.Check, health_pb2.HealthCheckRequest(service=MARK.decode())))
        world.statuses.append(world.callers.unary(checked.Check, health_pb2.HealthCheckRequest()))
        reflected = reflection_pb2_grpc.ServerReflectionStub(channel)
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        world.statuses.append(world.callers.stream(reflected.ServerReflectionInfo, listing))
    for upload_id, batch in (("long", [MARK * 400]), ("large", [MARK * 100] * 4000)):
        messages = [open_upload("members", upload_id), raw_batch(1, batch)]
        world.statuses.append(world.callers.stream(stub.AddElements, *messages))
    with RawUpload(stub, open_upload("members", "silent"), raw_batch(1, elements(0, 100))) as upload:
        world.statuses.append(upload.failure().code)
    world.statuses.append(world.callers.unary(stub.GetSet, pb.GetSetRequest(name=MARK.decode())))


def end_it(world: World, number: signal.Signals) -> None:
    """In the middle of an upload, with elements in the process's memory; then start it again."""
    with world.process.stub() as stub:
        name = f"ended by {number.name}"
        with RawUpload(stub, open_upload("members", name), raw_batch(1, elements(0, 3000))) as upload:
            upload.opened()
            upload.acknowledged()
            upload.send(raw_batch(2, elements(3000, 3000)))
            os.kill(world.process.pid, number)
            assert world.process.wait() == -number
    world.process.start()


def run_commands(world: World, folder: Path) -> None:
    """Commands that fail, at the service and at Redis."""
    marked = folder / "marked.txt"
    marked.write_bytes(b"\n".join([*elements(0, 3), MARK * 400]))
    settings = {"VEILSET_SERVER": world.process.address, "VEILSET_REDIS": world.redis.url}
    for arguments in (
        ("add", "members", marked),
        ("overlap", "members", marked, "--column", "e-mail"),
        ("budget", MARK.decode()),
    ):
        done = veilset(*arguments, settings=settings)
        assert done.code in (1, 2), arguments
        world.callers.text(done.out, done.err)
        assert "hush" not in done.out + done.err


def collect(world: World, receiver: SpanReceiver) -> None:
    """All that is there when it is over."""
    for request in receiver.requests:
        world.operators.message(request)
    world.span_names = {span.name.rpartition("/")[2] for span in receiver.spans}
    world.operators.text(world.process.log_path.read_bytes(), *world.scrapes)
    world.shown = redis_content(world.redis.url)
    world.callers.blobs += world.shown.values()
    state = world.process.state
    for path in state.parent.rglob("*"):
        if path.is_file() and not any(part in str(path.relative_to(state.parent)) for part in SECRET_FILES):
            world.folder.blobs.append(path.read_bytes())
            world.folder.text(str(path))
    world.raw = raw_vector(state, "members")


def test_the_scenario_took_every_path(world: World) -> None:
    """Else there was nothing to find."""
    assert {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "NOT_FOUND", "INVALID_ARGUMENT"} <= set(world.statuses)
    log = world.process.log_path.read_text()
    assert "Fatal Python error: Aborted" in log
    assert '"event": "call"' in log
    assert {"AddElements", "PublishRelease", "Check", "ServerReflectionInfo"} <= world.span_names
    scrapes = [parsed(text) for text in world.scrapes]
    assert max(value(found, "veilset_publish_total", outcome="unavailable") for found in scrapes) >= 2
    assert {value(found, "veilset_redis_up") for found in scrapes} == {0, 1}
    assert {value(found, "veilset_state_disk_nearly_full") for found in scrapes} == {0, 1}
    assert any(name.endswith(":manifest") for name in world.shown)
    assert world.folder.find(b"members")
    assert [path.name for path in Path.cwd().glob("core*") if path.is_file()] == []


@pytest.mark.parametrize("where", ["callers", "operators", "folder"])
def test_no_element_and_no_digest_comes_out(world: World, where: str) -> None:
    """In no form; and no password of Redis."""
    seen: Seen = getattr(world, where)
    assert seen.find(MARK, b"hush") == []
    assert seen.find_digests([*elements(0, SENT), MARK, MARK * 100, MARK * 400], world.seed) == []


@pytest.mark.parametrize("what", [*SIZES, SENT, "ones", "fill", "load"])
def test_no_size_comes_out(world: World, what: int | str) -> None:
    """Neither of an upload nor of the set, to those who operate the service."""
    bits = 8 * len(world.raw)
    ones = int(np.bitwise_count(np.frombuffer(world.raw, dtype=np.uint8)).sum())
    numbers: dict[int | str, float] = {"ones": ones, "fill": ones / bits, "load": SENT / bits}
    number = numbers.get(what, what)
    assert isinstance(number, int | float)
    assert world.operators.find_number(number) == []
    if what not in SIZES:  # each of which its own producer was told
        assert world.callers.find_number(number) == []


@pytest.mark.parametrize("where", ["callers", "operators", "folder"])
def test_no_stretch_of_the_raw_vector_comes_out(world: World, where: str) -> None:
    """Of 64 bytes with anything in them."""
    seen: Seen = getattr(world, where)
    assert sum(world.raw) > 0
    assert shared_windows(world.raw, [*seen.words, *seen.blobs]) == []
