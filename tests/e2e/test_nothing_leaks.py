"""No element, no digest, no size, no fill: neither in Redis nor on the wire, in logs or in errors.

One long scenario sends elements that all bear one mark down every path, most of them failing, and takes down whatever
comes out. The tests then look through that.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import leaky_service
import numpy as np
import pytest
import redis

from harness.leaks import Seen, shared_windows
from harness.programs import veilset
from harness.raw_calls import RawUpload, digest_batch, finish, hashed, open_upload, raw_batch
from harness.service_process import ServiceProcess, running
from harness.shapes import bloom
from harness.vectors import raw_vector, redis_content
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2, release_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

MARK = f"mark{secrets.token_hex(8)}".encode()
SIZES = (7919, 6133, 4987)
OVERLAP = 500
SENT = sum(SIZES)
DISTINCT = SENT - 2 * OVERLAP
FAULTY = 7 * 8 * 1000 + 5
"""Bits of a vector that the planted fault cannot perturb."""


@dataclass(slots=True)
class World:
    """What came out, and the secrets to look for in it."""

    service: ServiceProcess
    seen: Seen = field(default_factory=Seen)
    statuses: list[str] = field(default_factory=list)
    redis: dict[str, bytes] = field(default_factory=dict)
    raw: bytes = b""
    seed: int = 0


def element(number: int) -> bytes:
    """An element that bears the mark."""
    return b"%s-%d@example.org" % (MARK, number)


def uploads() -> list[list[bytes]]:
    """Three lists that overlap, so that sizes, sum and number of distinct elements all differ."""
    starts = [0, SIZES[0] - OVERLAP, SIZES[0] + SIZES[1] - 2 * OVERLAP]
    return [[element(start + i) for i in range(size)] for start, size in zip(starts, SIZES, strict=True)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The scenario, played once."""
    folder = tmp_path_factory.mktemp("leaks")
    program = [leaky_service.__file__]
    with running(ServiceProcess(folder / "state", ["--log-level", "debug"], program)) as service:
        found = World(service)
        with redis.Redis.from_url(service.redis) as client, client.pubsub() as listener, service.stub() as stub:
            listener.psubscribe("*")
            fill_and_publish(found, stub)
            fail_on_streams(found, stub)
            fail_on_calls(found, stub)
            garbage(found)
            run_commands(found, folder)
            while message := listener.get_message(timeout=1.0 if message_is_first(found) else 0.0):
                found.seen.text(*(part for part in message.values() if isinstance(part, bytes)))
        found.redis = redis_content(service.redis)
        found.raw = raw_vector(service.state, "members")
        found.seen.blobs += found.redis.values()
        found.seen.text(*found.redis)
        for manifest in (value for name, value in found.redis.items() if name.endswith(":manifest")):
            signed = release_pb2.SignedHeader.FromString(manifest)
            found.seen.message(release_pb2.ReleaseHeader.FromString(signed.header))
    found.seen.text(service.log_path.read_bytes(), service.address, service.public_key)
    own_id = b"%d:" % service.children[0].pid
    for told in [*folder.glob("state.anchor*"), *service.state.glob("valkey/*")]:
        found.seen.text(told.read_bytes().replace(own_id, b""))  # its process id might be any number
    return found


def message_is_first(world: World) -> bool:
    """Whether there is still a notification to wait for."""
    return not any(b":releases" in word for word in world.seen.words)


def fill_and_publish(world: World, stub: MembershipServiceStub) -> None:
    """The path on which all goes well, and every question that can be asked about it."""
    seen = world.seen
    promise = parameters_pb2.PrivacyParameters(epsilon=1.0, delta=1e-9, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)
    for name, bits in (("members", 0), ("faulty", FAULTY), ("mails", 0)):
        mail = parameters_pb2.NORMALIZATION_EMAIL_V1 if name == "mails" else parameters_pb2.NORMALIZATION_NONE
        request = pb.CreateSetRequest(
            name=name,
            size=20_000,
            privacy=promise,
            encoding=bloom(bits, min(bits, 1)) if bits else None,
            budget_epsilon=2,
            normalization=mail,
        )
        world.statuses.append(seen.unary(stub.CreateSet, request))
    world.seed = stub.GetSet(pb.GetSetRequest(name="members")).set.hashing.seed
    for number, elements in enumerate(uploads()):
        packed = hashed(elements, world.seed)
        batches = [raw_batch(1, elements[:3000]), digest_batch(2, packed[3000 * 8 :])]
        last = finish(len(elements), packed)
        opened = open_upload("members", f"upload {number}")
        world.statuses.append(seen.stream(stub.AddElements, opened, *batches, last))
    for request_id in ("one", "two", "two", "beyond the budget"):
        publish = pb.PublishReleaseRequest(set_name="members", request_id=request_id)
        world.statuses.append(seen.unary(stub.PublishRelease, publish))
    for method, question in (
        (stub.GetSet, pb.GetSetRequest(name="members")),
        (stub.ListSets, pb.ListSetsRequest()),
        (stub.GetRelease, pb.GetReleaseRequest(set_name="members")),
        (stub.ListReleases, pb.ListReleasesRequest(set_name="members")),
        (stub.GetBudget, pb.GetBudgetRequest(set_name="members")),
        (stub.ReconcileReleases, pb.ReconcileReleasesRequest()),
    ):
        world.statuses.append(seen.unary(method, question))


def fail_on_streams(world: World, stub: MembershipServiceStub) -> None:
    """Marked elements in uploads that fail, in every way, also in ways that nobody foresaw."""
    marked = [element(number) for number in range(20)]
    packed = hashed(marked, world.seed)
    for number, messages in enumerate(
        (
            [raw_batch(1, marked), raw_batch(3, marked)],
            [raw_batch(1, marked), raw_batch(2, [*marked, b""])],
            [raw_batch(1, [*marked, MARK * 400])],
            [digest_batch(1, MARK + packed)],
            [digest_batch(1, packed), finish(20, packed[8:])],
            [digest_batch(1, packed), finish(21, packed)],
            [digest_batch(1, packed)],
            [raw_batch(1, [*marked, leaky_service.BREAK])],
            [open_upload(MARK.decode(), MARK.decode())],
        )
    ):
        opened = open_upload("members", f"bad {number}")
        world.statuses.append(world.seen.stream(stub.AddElements, opened, *messages))
    for name, bad in ((MARK.decode(), marked), ("mails", [MARK])):
        messages = [open_upload(name, "bad"), raw_batch(1, bad)]
        world.statuses.append(world.seen.stream(stub.AddElements, *messages))
    with RawUpload(stub, open_upload("members", "aborted"), raw_batch(1, marked)) as stream:
        world.seen.message(stream.receive())
        world.seen.message(stream.receive())


def fail_on_calls(world: World, stub: MembershipServiceStub) -> None:
    """Marks where a name should be, and a fault in the middle of publishing."""
    mark = MARK.decode()
    messages = [open_upload("faulty", "u"), raw_batch(1, [element(number) for number in range(4000)]), finish(4000)]
    world.statuses.append(world.seen.stream(stub.AddElements, *messages))
    for method, request in (
        (stub.PublishRelease, pb.PublishReleaseRequest(set_name="faulty", request_id="r")),
        (stub.PublishRelease, pb.PublishReleaseRequest(set_name=mark, request_id=mark)),
        (stub.PublishRelease, pb.PublishReleaseRequest(set_name="mails", request_id=mark * 9)),
        (stub.CreateSet, pb.CreateSetRequest(name=mark + " ", size=1)),
        (stub.GetSet, pb.GetSetRequest(name=mark)),
        (stub.DeleteSet, pb.DeleteSetRequest(name=mark)),
        (stub.GetBudget, pb.GetBudgetRequest(account=mark)),
        (stub.ListReleases, pb.ListReleasesRequest(set_name="members", page_token=mark)),
    ):
        world.statuses.append(world.seen.unary(method, request))


def garbage(world: World) -> None:
    """What is no message at all."""
    with grpc.insecure_channel(world.service.address) as channel:
        unary: Any = channel.unary_unary("/veilset.v1.MembershipService/GetSet")
        stream: Any = channel.stream_stream("/veilset.v1.MembershipService/AddElements")
        with pytest.raises(grpc.RpcError) as refusal:
            unary(b"\xff" + MARK)
        world.seen.call(refusal.value)
        world.statuses.append(world.seen.stream(stream, b"\xff" + MARK))


def run_commands(world: World, folder: Path) -> None:
    """The command line, where it fails."""
    settings = {"VEILSET_SERVER": world.service.address, "VEILSET_REDIS": world.service.redis}
    (folder / "long.txt").write_bytes(element(1) + b"\n" + MARK * 400)
    (folder / "list.csv").write_bytes(element(1) + b",x\n" + element(2) + b"\n")
    (folder / "mails.txt").write_bytes(element(1) + b"\n" + MARK)
    for arguments in (
        ("add", "members", folder / "long.txt"),
        ("add", "members", folder / "list.csv", "--column", "e-mail"),
        ("add", "members", folder / "list.csv", "--column", "2"),
        ("add", "mails", folder / "mails.txt"),
        ("publish", MARK),
        ("query", "members", "--from", folder / "long.txt", "--summary"),
    ):
        done = veilset(*arguments, settings=settings)
        assert done.code in ((0,) if arguments[0] == "query" else (1, 2))  # a query passes by what is no element
        world.seen.text(done.out, done.err)


def test_the_scenario_took_every_path(world: World) -> None:
    """Else there was nothing to find: statuses of all kinds came, and the planted faults showed in the log."""
    expected = {"OK", "ABORTED", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL", "FAILED_PRECONDITION"}
    assert set(world.statuses) == expected
    assert world.statuses.count("INTERNAL") == 2  # hashing, perturbing
    faults = [r["kind"] for r in world.service.log_records() if r["event"] == "internal error"]
    assert faults == ["ValueError", "RuntimeError"]
    assert sorted(world.redis) == [
        *(f"veilset:members:{sequence}:{part}" for sequence in (1, 2) for part in ("bits:0", "manifest")),
        "veilset:members:latest",
    ]
    assert world.seen.find(b"veilset:members:releases")
    assert world.seen.find_number(CHUNK_BYTES)  # of the headers, whose bytes alone would not show it


def test_no_element_comes_out(world: World) -> None:
    """In no form, anywhere."""
    assert world.seen.find(MARK) == []


def test_no_digest_comes_out(world: World) -> None:
    """Neither of the set's elements nor of those of failed uploads."""
    elements = list(dict.fromkeys(e for upload in uploads() for e in upload))
    assert len(elements) == DISTINCT
    assert world.seen.find_digests([*elements, MARK, MARK * 400, leaky_service.BREAK], world.seed) == []


@pytest.mark.parametrize("what", ["sent", "distinct", "ones", "fill", "load"])
def test_no_size_comes_out(world: World, what: str) -> None:
    """Acknowledgements told each upload's own count; nothing told what they come to, or what the vector holds."""
    bits = 8 * len(world.raw)
    ones = int(np.bitwise_count(np.frombuffer(world.raw, dtype=np.uint8)).sum())
    numbers: dict[str, float] = {
        "sent": SENT,
        "distinct": DISTINCT,
        "ones": ones,
        "fill": ones / bits,
        "load": DISTINCT / bits,
    }
    assert world.seen.find_number(SIZES[0])  # this one the producer was told
    assert world.seen.find_number(numbers[what]) == []


def test_the_raw_vector_is_nowhere_in_redis(world: World) -> None:
    """No stretch of it that has anything in it."""
    assert sum(world.raw) > 0
    assert shared_windows(world.raw, world.redis.values()) == []
