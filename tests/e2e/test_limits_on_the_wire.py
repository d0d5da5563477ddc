"""Limits of a real service: each refusal names the limit, and what is refused takes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from bad_inputs import creation

from harness.hostile_http2 import GET_SET, HostileConnection, framed
from harness.patience import SECONDS
from harness.programs import wait_until
from harness.raw_calls import Failure, RawUpload, fails, failure_of, finish, open_upload, raw_batch
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub
from veilset_server.rpc.allowances import MAX_PLANS_OF_ONE

CALLS, UPLOADS, ALL_UPLOADS, MESSAGE_BYTES = 6, 3, 5, 1 << 16
OPTIONS = {
    "--max-calls-per-principal": CALLS,
    "--max-open-uploads-per-principal": UPLOADS,
    "--max-open-uploads": ALL_UPLOADS,
    "--max-message-bytes": MESSAGE_BYTES,
    "--requests-per-second-per-principal": 200,
    "--idle-seconds": 2,
}
INVALID_ARGUMENT, UNAVAILABLE = "3", "14"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with narrow limits and one set."""
    state = tmp_path_factory.mktemp("limited") / "state"
    token = new_token(state, "admin")
    with running(ServiceProcess(state, [str(part) for pair in OPTIONS.items() for part in pair])) as process:
        with stub_with(process, token) as stub:
            stub.CreateSet(creation("crowded"))
        yield process


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with its ordinary limits."""
    state = tmp_path_factory.mktemp("roomy") / "state"
    new_token(state, "admin")
    with running(ServiceProcess(state)) as process:
        yield process


def begin(stub: MembershipServiceStub, upload_id: str) -> Failure | None:
    """Begin an upload and leave it; how it was refused, or None."""
    with RawUpload(stub, open_upload("crowded", upload_id)) as stream:
        try:
            stream.opened()
        except grpc.RpcError as error:
            return failure_of(error)
    return None


def assert_limit(failure: Failure | None, setting: str, limit: int) -> None:
    """The refusal says which limit and how much it is."""
    assert failure is not None
    assert (failure.code, failure.reason) == ("RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED")
    assert failure.metadata == {"setting": setting, "limit": str(limit)}
    assert f"{setting} = {limit}" in failure.message


def test_open_uploads(limited: ServiceProcess) -> None:
    """Of one principal, whichever token it shows, and in all. One that is there goes on; one that is finished gives its place
    back."""
    first, again = (new_token(limited.state, "producer", name="crm") for _ in range(2))
    other = new_token(limited.state, "producer", name="shop")
    with ExitStack() as stack:
        crm, crm_again, shop = (stack.enter_context(stub_with(limited, token)) for token in (first, again, other))
        assert [begin(crm, f"u{number}") for number in range(UPLOADS)] == [None] * UPLOADS
        assert_limit(begin(crm_again, "one more"), "max_open_uploads_per_principal", UPLOADS)
        assert begin(crm_again, "u0") is None
        assert [begin(shop, f"u{number}") for number in range(ALL_UPLOADS - UPLOADS)] == [None, None]
        assert_limit(begin(shop, "one more"), "max_open_uploads", ALL_UPLOADS)
        with RawUpload(crm, open_upload("crowded", "u0"), raw_batch(1, [b"a"]), finish(1)) as stream:
            stream.opened()
            stream.acknowledged()
            assert stream.finished() == 1
        assert begin(shop, "one more") is None


def test_open_calls(limited: ServiceProcess) -> None:
    """Those of one principal; a call that ends gives its place back, and the others have theirs."""
    token, other = new_token(limited.state, "reader"), new_token(limited.state, "reader")
    with (
        HostileConnection(limited.address, token) as connection,
        stub_with(limited, token) as mine,
        stub_with(limited, other) as others,
    ):
        streams = [connection.open(GET_SET) for _ in range(CALLS + 2)]
        connection.flush()
        while len(connection.statuses) < 2:
            assert connection.read()
        assert list(connection.statuses.values()) == ["8", "8"]
        assert_limit(_list(mine), "max_calls_per_principal", CALLS)
        assert _list(others) is None
        for stream in set(streams) - set(connection.statuses):
            connection.send(stream, framed(pb.GetSetRequest(name="crowded").SerializeToString()), end=True)
            assert connection.wait_for(stream) == "0"
        wait_until(lambda: _list(mine) is None)


def _list(stub: MembershipServiceStub) -> Failure | None:
    try:
        stub.ListSets(pb.ListSetsRequest(), timeout=SECONDS)
    except grpc.RpcError as error:
        return failure_of(error)
    return None


def test_calls_a_second(limited: ServiceProcess) -> None:
    """A burst is served; then one call after the other is refused. Another principal at the same address is not."""
    token, other = new_token(limited.state, "reader"), new_token(limited.state, "reader")
    with HostileConnection(limited.address, token) as connection, stub_with(limited, other) as others:
        message = framed(pb.GetSetRequest(name="crowded").SerializeToString())
        statuses = []
        for _ in range(40):  # 1000 calls as fast as they go, never more open than may be
            streams = [connection.open(GET_SET) for _ in range(25)]
            for stream in streams:
                connection.send(stream, message, end=True)
            statuses += [connection.wait_for(stream) for stream in streams]
        assert set(statuses) == {"0", "8"}
        assert statuses.count("0") >= 100
        assert _list(others) is None


def test_what_is_said_must_come_and_must_be_a_message(limited: ServiceProcess) -> None:
    """A unary call without its message meets the idle deadline; garbage is the caller's fault."""
    token = new_token(limited.state, "reader")
    with HostileConnection(limited.address, token) as connection:
        silent = [connection.open(GET_SET) for _ in range(2)]
        half = connection.open(GET_SET)
        connection.send(half, framed(b"", 10) + b"12345")
        empty = connection.open(GET_SET, end=True)
        garbage = connection.open(GET_SET)
        connection.send(garbage, framed(b"\xff\xff"), end=True)
        assert connection.wait_for(empty) == INVALID_ARGUMENT
        assert connection.wait_for(garbage) == INVALID_ARGUMENT
        assert [connection.wait_for(stream) for stream in (*silent, half)] == [UNAVAILABLE] * 3


def test_long_messages(limited: ServiceProcess) -> None:
    """The limit is the message's, not the upload's."""
    token = new_token(limited.state, "producer")
    with stub_with(limited, token) as stub:
        failure: Any = fails(stub.GetSet, pb.GetSetRequest(name="a" * MESSAGE_BYTES))
        assert failure.code == "RESOURCE_EXHAUSTED"
        assert str(MESSAGE_BYTES) in failure.message


def test_a_method_without_a_rule_is_refused(limited: ServiceProcess) -> None:
    """One that is not there at all is not there."""
    token = new_token(limited.state, "admin")
    with HostileConnection(limited.address, token) as connection:
        stream = connection.open("/veilset.v1.MembershipService/Nonsense", end=True)
        connection.flush()
        assert connection.wait_for(stream) == "12"


def test_plans_of_one_caller(roomy: ServiceProcess) -> None:
    """A search takes a processor for seconds, and there is one queue: a caller who fills its own part of it leaves the others
    theirs. Here forty searches of a reader's meet an admin's."""
    reader, admin = new_token(roomy.state, "reader"), new_token(roomy.state, "admin")
    privacy = parameters_pb2.PrivacyParameters(
        epsilon=0.05,
        delta=1e-12,
        adjacency=parameters_pb2.ADJACENCY_REPLACE_ONE,
        calibration=parameters_pb2.CALIBRATION_EXACT,
        elements_per_user=8,
    )
    request = pb.PlanReleaseRequest(size=10**9, privacy=privacy)
    with stub_with(roomy, reader) as searching, stub_with(roomy, admin) as creating:
        searches = [searching.PlanRelease.future(request, timeout=SECONDS) for _ in range(40)]
        created = creating.CreateSet.future(creation("planned"), timeout=SECONDS)
        refusals = [failure_of(search) for search in searches if search.exception()]  # type: ignore[arg-type] # it is one too
        assert created.result().set.name == "planned"
    busy = [failure for failure in refusals if failure.code == "RESOURCE_EXHAUSTED"]
    assert 0 < len(busy) <= 40 - MAX_PLANS_OF_ONE  # fewer where some were done before the last ones came
    assert {failure.metadata["limit"] for failure in busy} == {str(MAX_PLANS_OF_ONE)}
