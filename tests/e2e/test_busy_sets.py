"""A set that is published, or whose deletion waits for Redis, holds up nobody but itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bad_inputs import creation

from harness.metrics import scrape
from harness.patience import SECONDS
from harness.programs import wait_until
from harness.raw_calls import fails, failure_of, upload
from harness.service_process import ServiceProcess
from harness.shapes import bloom
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

PROGRAM = str(Path(__file__).with_name("held_publishes.py"))

_numbers = itertools.count(1)


@contextmanager
def held_publish(file: Path, stub: MembershipServiceStub, set_name: str) -> Iterator[None]:
    """The block in which the set is being published."""
    file.touch()
    with ThreadPoolExecutor(1) as pool:
        request = pb.PublishReleaseRequest(set_name=set_name, request_id="held", no_wait=True)
        publishing = pool.submit(stub.PublishRelease, request, timeout=SECONDS)
        try:
            wait_until(file.with_suffix(".reached").exists)
            yield
            assert not publishing.done()
        finally:
            file.unlink()
        publishing.result(SECONDS)


def small(name: str) -> pb.CreateSetRequest:
    """A set that needs no search for a plan."""
    return creation(name, bits=8000, hashes=1, allow_poor_utility=True)


def others_go_on(stub: MembershipServiceStub, busy: str) -> None:
    """Planning and creating, also under the name that is busy."""
    privacy = small(busy).privacy
    stub.PlanRelease(pb.PlanReleaseRequest(size=1000, privacy=privacy, encoding=bloom(8000, 1)), timeout=SECONDS)
    assert fails(stub.CreateSet, small(busy)).code == "ALREADY_EXISTS"
    name = f"other-{next(_numbers)}"
    stub.CreateSet(small(name), timeout=SECONDS)
    stub.GetSet(pb.GetSetRequest(name=busy), timeout=SECONDS)


def value(service: ServiceProcess, name: str, **labels: str) -> float:
    """A sample; 0 where it is not told."""
    return scrape(service.metrics).get((name, tuple(sorted(labels.items()))), 0.0)


def test_while_a_deletion_waits_for_a_publish(start_service: Callable[..., ServiceProcess], tmp_path: Path) -> None:
    """Planning, creating under any name, uploads into the busy set, delivering, comparing with Redis: none of it waits. What
    waited goes on in the end."""
    file = tmp_path / "hold"
    options = ("--metrics-port", "0", "--reconcile-seconds", "0.1")
    service = start_service(*options, program=(PROGRAM, str(file)))

    def passes() -> float:
        return value(service, "veilset_reconcile_passes_total", outcome="ok")

    with service.stub() as stub, ThreadPoolExecutor(8) as pool:
        for name in ("busy", "idle"):
            stub.CreateSet(small(name))
            upload(stub, name, [[b"a"]])
        with held_publish(file, stub, "busy"):
            upload(stub, "busy", [[b"late"]], "late")
            stub.AddBatch(pb.AddBatchRequest(set_name="busy", upload_id="small", digests=bytes(8)), timeout=SECONDS)
            delete = pool.submit(stub.DeleteSet, pb.DeleteSetRequest(name="busy"), timeout=SECONDS)
            wait_until(lambda: value(service, "veilset_rpc_started_total", method="DeleteSet") == 1)
            publish = pb.PublishReleaseRequest(set_name="busy", request_id="one", no_wait=True)
            publishing = [pool.submit(stub.PublishRelease, publish, timeout=SECONDS) for _ in range(4)]
            for _ in range(2):
                others_go_on(stub, "busy")
            publish = pb.PublishReleaseRequest(set_name="idle", request_id="one")
            assert stub.PublishRelease(publish, timeout=SECONDS).release.state == pb.RELEASE_STATE_PUBLISHED
            stub.ReconcileReleases(pb.ReconcileReleasesRequest(), timeout=SECONDS)
            before = passes()
            wait_until(lambda: passes() > before + 1)
            assert not delete.done()
            assert not any(call.done() for call in publishing)
        delete.result(SECONDS)
        for call in publishing:  # each before the deletion or behind it
            error = call.exception(SECONDS)
            assert error is None or failure_of(error).code == "NOT_FOUND"  # type: ignore[arg-type]
        stub.CreateSet(small("busy"), timeout=SECONDS)
        assert stub.GetBudget(pb.GetBudgetRequest(set_name="busy")).budget.charges <= 1


def test_while_a_deletion_waits_for_redis(start_service: Callable[..., ServiceProcess]) -> None:
    """A Redis that hangs holds up neither planning nor creating; where it goes on the deletion does."""
    service = start_service("--redis-timeout-seconds", "120", "--metrics-port", "0")
    (valkey,) = service.children
    with service.stub() as stub, ThreadPoolExecutor(1) as pool:
        stub.CreateSet(small("busy"))
        valkey.suspend()
        try:
            delete = pool.submit(stub.DeleteSet, pb.DeleteSetRequest(name="busy"), timeout=SECONDS)
            wait_until(lambda: value(service, "veilset_rpc_started_total", method="DeleteSet") == 1)
            for _ in range(2):
                others_go_on(stub, "busy")
            upload(stub, "busy", [[b"a"]])
            assert not delete.done()
        finally:
            valkey.resume()
        delete.result(SECONDS)
        assert fails(stub.GetSet, pb.GetSetRequest(name="busy")).code == "NOT_FOUND"
