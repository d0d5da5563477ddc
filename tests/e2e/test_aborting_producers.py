"""Three hundred producers that give up at random never make a set publishable; one that finishes does."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import grpc

from harness.raw_calls import RawUpload, fails, finish, open_upload, raw_batch, upload
from harness.service_process import ServiceProcess
from harness.shapes import shape_of
from harness.vectors import expected_vector, raw_vector
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

PRODUCERS = 300
AT_ONCE = 12
ELEMENTS = [b"element %d" % number for number in range(2000)]


def give_up(channel: grpc.Channel, set_name: str, number: int) -> str:
    """Open an upload, send some of it, and end it in one of the ways in which uploads end; returns which."""
    chance = random.Random(number)  # noqa: S311 - the same run every time
    way = chance.choice(["reset", "reset at once", "half-close", "wrong count", "wrong checksum", "gap", "connection"])
    batches = [raw_batch(i, chance.sample(ELEMENTS, 20)) for i in range(1, chance.randint(1, 6))]
    last = {
        "wrong count": [finish(20 * len(batches) + 1)],
        "wrong checksum": [finish(20 * len(batches), b"not what was sent")],
        "gap": [raw_batch(len(batches) + 2, ELEMENTS[:5]), finish(20 * len(batches) + 5)],
    }.get(way, [])
    with RawUpload(
        MembershipServiceStub(channel), open_upload(set_name, f"upload {number}"), *batches, *last
    ) as stream:
        if way == "half-close":
            stream.half_close()
        if way in ("half-close", *("wrong count", "wrong checksum", "gap")):
            assert stream.failure().code == "ABORTED"
        elif way == "connection":
            channel.close()
        elif way == "reset":
            for _ in range(chance.randint(0, len(batches))):
                stream.receive()
    return way


def test_only_a_finished_upload_makes_a_set_publishable(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str
) -> None:
    """Resets, half-closes, dead connections, wrong finishes: all the same. Nothing is charged in the meantime."""
    privacy = parameters_pb2.PrivacyParameters(epsilon=2.0, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)
    made = stub.CreateSet(pb.CreateSetRequest(name=set_name, size=2000, privacy=privacy)).set
    publish = pb.PublishReleaseRequest(set_name=set_name, request_id="r")

    def produce(number: int) -> str:
        with grpc.insecure_channel(service.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            return give_up(channel, set_name, number)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, PRODUCERS, PRODUCERS // 5):
            ways = set(pool.map(produce, range(start, start + PRODUCERS // 5)))
            assert len(ways) == 7
            assert fails(stub.PublishRelease, publish).code == "FAILED_PRECONDITION"
            assert not any(raw_vector(service.state, set_name))
    assert stub.GetBudget(pb.GetBudgetRequest(set_name=set_name)).budget.charges == 0

    upload(stub, set_name, [ELEMENTS[:10], ELEMENTS[10:30]], "the one that finishes")
    assert raw_vector(service.state, set_name) == expected_vector(shape_of(made.encoding, made.hashing), ELEMENTS[:30])
    assert stub.PublishRelease(publish).release.state == pb.RELEASE_STATE_PUBLISHED
    assert stub.GetBudget(pb.GetBudgetRequest(set_name=set_name)).budget.charges == 1
