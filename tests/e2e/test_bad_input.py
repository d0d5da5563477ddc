"""Bad input on the wire: a canonical status that names the field, and nothing applied, nothing charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bad_inputs import BAD_CALLS, BAD_STREAMS, BadCall, BadStream, creation

from harness.programs import unused_port
from harness.raw_calls import Failure, RawUpload, fails, upload
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running
from harness.vectors import raw_vector, redis_content
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service of its own: in a shared one, sets of other tests change meanwhile."""
    with running(ServiceProcess(tmp_path_factory.mktemp("bad-input") / "state")) as process:
        yield process


@pytest.fixture(scope="module")
def stub(service: ServiceProcess) -> Iterator[MembershipServiceStub]:
    with service.stub() as found:
        yield found


@pytest.fixture(scope="module")
def full(stub: MembershipServiceStub) -> str:
    """The name of a set with elements and a release, and with budget left."""
    stub.CreateSet(creation("full", budget_epsilon=9.0))
    upload(stub, "full", [[b"one", b"two"], [b"three"]])
    stub.PublishRelease(pb.PublishReleaseRequest(set_name="full", request_id="before"))
    return "full"


@pytest.fixture(scope="module")
def empty(stub: MembershipServiceStub) -> str:
    """The name of a set into which nothing was finished."""
    stub.CreateSet(creation("empty"))
    return "empty"


def everything(service: ServiceProcess, stub: MembershipServiceStub) -> list[object]:
    """All that a call might change, but for uploads that are open: sets, vectors, releases, budgets, Redis."""
    return [
        redis_content(service.redis),
        stub.ListSets(pb.ListSetsRequest(page_size=1000)),
        *(raw_vector(service.state, name) for name in ("full", "empty")),
        *(stub.GetBudget(pb.GetBudgetRequest(set_name=name)) for name in ("full", "empty")),
        stub.ListReleases(pb.ListReleasesRequest(set_name="full")),
    ]


def assert_names(failure: Failure, answer: tuple[str, str], field: str) -> None:
    """Code and reason as the table says, and the field in ErrorInfo and, where the value is to blame, in BadRequest."""
    assert (failure.code, failure.reason) == answer, failure
    assert failure.metadata["field"] == field, failure
    assert failure.fields == ([field] if failure.code == "INVALID_ARGUMENT" else []), failure
    assert "\n" not in failure.message


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_changes_nothing(
    case: str, service: ServiceProcess, stub: MembershipServiceStub, full: str, empty: str
) -> None:
    """Every unary method, every field."""
    bad: BadCall = BAD_CALLS[case]
    before = everything(service, stub)
    assert_names(fails(getattr(stub, bad.method), bad.make(full)), bad.answer, bad.field)
    assert everything(service, stub) == before


@pytest.mark.parametrize("case", BAD_STREAMS)
def test_a_bad_stream_changes_nothing(
    case: str, service: ServiceProcess, stub: MembershipServiceStub, full: str, empty: str
) -> None:
    """Every mistake an upload can make; the set is as it was, full or empty, and the empty one stays unpublishable."""
    bad: BadStream = BAD_STREAMS[case]
    before = everything(service, stub)
    for name in (full, empty):
        with RawUpload(stub, *bad.make(name, case)) as stream:
            if bad.half_close:
                stream.half_close()
            assert_names(stream.failure(), bad.answer, bad.field)
    refusal = fails(stub.PublishRelease, pb.PublishReleaseRequest(set_name=empty, request_id="r"))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "FAILED_PRECONDITION")
    assert everything(service, stub) == before


def test_a_message_too_long_for_the_wire_changes_nothing(
    service: ServiceProcess, stub: MembershipServiceStub, full: str, empty: str
) -> None:
    """gRPC itself refuses it."""
    before = everything(service, stub)
    bad = BAD_STREAMS["too many digests"].make(empty, "long")
    with RawUpload(stub, bad[0], pb.AddElementsRequest(batch=pb.Batch(sequence=1, digests=bytes(5 << 20)))) as stream:
        assert stream.failure().code == "RESOURCE_EXHAUSTED"
    assert everything(service, stub) == before


def test_an_unreachable_redis_charges_nothing(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer]
) -> None:
    """Publishing and deleting are refused until it is there; then both work, with the first charge."""
    port = unused_port()
    service = start_service("--redis", f"redis://127.0.0.1:{port}/0")
    publish = pb.PublishReleaseRequest(set_name="full", request_id="r")
    with service.stub() as stub:
        stub.CreateSet(creation("full"))
        upload(stub, "full", [[b"one"]])
        for method, request in ((stub.PublishRelease, publish), (stub.DeleteSet, pb.DeleteSetRequest(name="full"))):
            failure = fails(method, request)
            assert (failure.code, failure.reason) == ("UNAVAILABLE", "UNAVAILABLE")
            assert failure.metadata == {"kind": "ConnectionError"}
        assert stub.GetBudget(pb.GetBudgetRequest(set_name="full")).budget.charges == 0
        assert not stub.ListReleases(pb.ListReleasesRequest(set_name="full")).releases
        assert any(raw_vector(service.state, "full"))
        start_redis(port=port)
        assert stub.PublishRelease(publish).release.state == pb.RELEASE_STATE_PUBLISHED
        assert stub.GetBudget(pb.GetBudgetRequest(set_name="full")).budget.charges == 1
        stub.DeleteSet(pb.DeleteSetRequest(name="full"))


def test_a_redis_that_takes_no_writes_charges_nothing(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer]
) -> None:
    """One that is full, or a replica, cannot take a release either."""
    server = start_redis()
    service = start_service("--redis", server.url)
    publish = pb.PublishReleaseRequest(set_name="full", request_id="r")
    with service.stub() as stub:
        stub.CreateSet(creation("full"))
        upload(stub, "full", [[b"one"]])
        server.command("CONFIG", "SET", "maxmemory", 1)
        assert fails(stub.PublishRelease, publish).metadata == {"kind": "OutOfMemoryError"}
        server.command("CONFIG", "SET", "maxmemory", 0)
        server.command("REPLICAOF", "127.0.0.1", unused_port())
        assert fails(stub.PublishRelease, publish).metadata == {"kind": "ReadOnlyError"}
        server.command("REPLICAOF", "NO", "ONE")
        assert stub.GetBudget(pb.GetBudgetRequest(set_name="full")).budget.charges == 0
        assert stub.PublishRelease(publish).release.sequence == 1
