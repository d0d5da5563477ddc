"""One set of elements, however it comes, makes one vector."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import pytest

from harness.raw_calls import RawUpload, digest_batch, finish, hashed, open_upload, raw_batch, upload
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters, bloom
from harness.vectors import expected_vector, raw_vector
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

SHAPE = FilterParameters(bits=40_003, hashes=3, seed=99)
ELEMENTS = [b"element %d" % number for number in range(2000)]
Batches = Sequence[Sequence[bytes]]


def split(elements: Sequence[bytes], sizes: Sequence[int]) -> Batches:
    """Batches of the sizes given, in turn, until nothing is left."""
    batches, start, turn = [], 0, 0
    while start < len(elements):
        batches.append(elements[start : start + sizes[turn % len(sizes)]])
        start += len(batches[-1])
        turn += 1
    return batches


def shuffled(seed: int) -> list[bytes]:
    """The elements in another order."""
    return random.Random(seed).sample(ELEMENTS, len(ELEMENTS))  # noqa: S311 - an order, not a secret


WAYS: dict[str, list[Batches]] = {
    "in one batch": [[ELEMENTS]],
    "one by one at first": [split(ELEMENTS, [1] * 50 + [1950])],
    "in batches of all sizes": [split(ELEMENTS, [1, 2, 300, 5, 700])],
    "in another order": [split(shuffled(1), [333])],
    "twice in a batch": [[[*ELEMENTS, *ELEMENTS]]],
    "in overlapping batches": [[ELEMENTS[start : start + 300] for start in range(0, 2000, 200)]],
    "in two uploads": [[ELEMENTS[:1200]], [ELEMENTS[1200:]]],
    "in the same upload twice": [split(ELEMENTS, [500]), split(shuffled(2), [90])],
}


@pytest.fixture
def empty_set(stub: MembershipServiceStub, set_name: str) -> str:
    """A set of the shape that all tests here share."""
    privacy = parameters_pb2.PrivacyParameters(epsilon=2.0, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)
    request = pb.CreateSetRequest(
        name=set_name,
        size=2000,
        privacy=privacy,
        encoding=bloom(SHAPE.bits, SHAPE.hashes),
        seed=SHAPE.seed,
        allow_poor_utility=True,
    )
    stub.CreateSet(request)
    return set_name


@pytest.mark.parametrize("way", WAYS)
def test_order_duplicates_and_batches_make_no_difference(
    way: str, service: ServiceProcess, stub: MembershipServiceStub, empty_set: str
) -> None:
    """Raw elements, hashed by the service."""
    for number, batches in enumerate(WAYS[way]):
        upload(stub, empty_set, batches, f"upload {number}")
    assert raw_vector(service.state, empty_set) == expected_vector(SHAPE, ELEMENTS)


@pytest.mark.parametrize("mixed", [False, True], ids=["digests", "digests and raw elements"])
def test_digests_make_the_same_vector_as_elements(
    mixed: bool, service: ServiceProcess, stub: MembershipServiceStub, empty_set: str
) -> None:
    """Hashed by the producer, or partly."""
    batches = split(ELEMENTS, [700])
    messages = [
        raw_batch(number, batch) if mixed and number == 2 else digest_batch(number, hashed(batch, SHAPE.seed))
        for number, batch in enumerate(batches, start=1)
    ]
    last = finish(2000, hashed(ELEMENTS, SHAPE.seed))
    with RawUpload(stub, open_upload(empty_set, "u"), *messages, last) as stream:
        stream.opened()
        assert [stream.acknowledged()[1] for _ in batches] == [700, 1400, 2000]
        assert stream.finished() == 2000
    assert raw_vector(service.state, empty_set) == expected_vector(SHAPE, ELEMENTS)


@pytest.mark.parametrize("kind", [str, bytes])
def test_the_library_makes_the_same_vector(kind: type, service: ServiceProcess, empty_set: str) -> None:
    """From text or bytes."""
    given = iter(ELEMENTS) if kind is bytes else (element.decode() for element in ELEMENTS)
    with service.connect() as connection:
        connection.add(empty_set, given)
    assert raw_vector(service.state, empty_set) == expected_vector(SHAPE, ELEMENTS)


def test_an_empty_upload_is_an_upload(service: ServiceProcess, stub: MembershipServiceStub, empty_set: str) -> None:
    """Nobody may learn from a refusal that a set is empty."""
    with RawUpload(stub, open_upload(empty_set, "u"), finish(0, b"")) as stream:
        stream.opened()
        assert stream.finished() == 0
    assert not any(raw_vector(service.state, empty_set))
    answer = stub.PublishRelease(pb.PublishReleaseRequest(set_name=empty_set, request_id="r"))
    assert answer.release.state == pb.RELEASE_STATE_PUBLISHED


def test_uploads_at_once_lose_nothing(service: ServiceProcess, stub: MembershipServiceStub, empty_set: str) -> None:
    """Four producers side by side, batch by batch, on one set."""
    parts = [ELEMENTS[start::4] for start in range(4)]
    together = threading.Barrier(4)
    failures: list[BaseException] = []

    def produce(number: int, send: Callable[..., None]) -> None:
        try:
            together.wait(20)
            send(stub, empty_set, split(parts[number], [7]), f"upload {number}")
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    producers = [threading.Thread(target=produce, args=(number, upload)) for number in range(4)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    assert failures == []
    assert raw_vector(service.state, empty_set) == expected_vector(SHAPE, ELEMENTS)
