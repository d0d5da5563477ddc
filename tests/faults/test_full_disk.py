"""The state folder's disk is full: refused with RESOURCE_EXHAUSTED, nothing charged, and on it goes when there is space."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from ledger_copy import read_ledger
from stricken import wait_for

from harness.fault_tally import Trying
from harness.full_disk import fill_up, small_disk
from harness.raw_calls import RawUpload, fails, failure_of, finish, open_upload, raw_batch
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector, redis_content
from veilset.errors import StorageFull
from veilset.v1 import membership_pb2 as pb

DISK_BYTES = 6 << 20
RECOVERY_SECONDS = 5.0
PUBLISH = pb.PublishReleaseRequest(set_name="s", request_id="r")


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """Elsewhere than the small disk."""
    return start_redis()


@pytest.fixture
def process(tmp_path: Path, redis: RedisServer) -> Iterator[ServiceProcess]:
    """A service with its state on 6 MiB, its anchor beside it and its log elsewhere, and a set of 1 MiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        process = ServiceProcess(disk / "state", ("--redis", redis.url, "--reconcile-seconds", "0.5"))
        process.log_path = tmp_path / "service.log"
        with running(process):
            with process.connect() as service:
                service.create_set(
                    "s",
                    size=100_000,
                    epsilon=3,
                    adjacency="add-remove",
                    delta=1e-9,
                    bits=1 << 23,
                    hashes=1,
                    budget_epsilon=150,
                )
                service.add("s", [b"first"], upload_id="first")
            yield process


def test_uploads_and_publishes_on_a_full_disk(process: ServiceProcess, redis: RedisServer, trying: Trying) -> None:
    """What was acknowledged before stays, what was refused can be sent again, and a publish charges once in the end."""
    held = [f"held {number}".encode() for number in range(5000)]
    refused = [f"refused {number}".encode() for number in range(20_000)]
    with process.stub() as stub, process.connect() as service:
        with trying("full disk while receiving"), RawUpload(stub, open_upload("s", "u"), raw_batch(1, held)) as stream:
            stream.opened()
            assert stream.acknowledged() == (1, len(held))
            ballast = fill_up(process.state.parent)
            stream.send(raw_batch(2, refused))
            failure = stream.failure()
            assert (failure.code, failure.reason) == ("RESOURCE_EXHAUSTED", "STORAGE_FULL")
        with trying("full disk while publishing"):
            failure = fails(stub.PublishRelease, PUBLISH)
            assert (failure.code, failure.reason) == ("RESOURCE_EXHAUSTED", "STORAGE_FULL")
            assert not read_ledger(process.state).charges
            assert not redis_content(redis.url)
        with trying("full disk while making a set"), pytest.raises(StorageFull):
            service.create_set("t", size=1000, epsilon=3, adjacency="add-remove")
        assert [found.name for found in service.list_sets()] == ["s"]
        ballast.unlink()
        back = time.monotonic()
        with trying("space returns"):
            with RawUpload(stub, open_upload("s", "u")) as stream:
                assert stream.opened().sequence == 1
                stream.send(raw_batch(2, refused), finish(len(held) + len(refused)))
                stream.acknowledged()
                assert stream.finished() == len(held) + len(refused)
            assert service.publish("s", request_id="r").state == "published"
            assert time.monotonic() - back < RECOVERY_SECONDS
            assert service.budget("s").charges == 1
            service.create_set("t", size=1000, epsilon=3, adjacency="add-remove")
        expected = expected_vector(shape_of_set(service.get_set("s")), [b"first", *held, *refused])
        assert raw_vector(process.state, "s") == expected


@pytest.mark.faults
def test_the_disk_fills_up_at_every_place_of_a_publish_and_an_upload(
    process: ServiceProcess, redis: RedisServer, trying: Trying
) -> None:
    """With ever less space: each call is done or refused, whole; no charge without its release; the process lives on."""
    elements: list[bytes] = [b"first"]
    outcomes: set[str] = set()
    with process.stub() as stub, process.connect() as service:
        for number, room in enumerate((0, 1, 2, 3, 4, 6, 8, 12, 20, 40, 200, *range(256, 276))):
            ballast = fill_up(process.state.parent)
            with ballast.open("r+b") as file:
                file.truncate(max(0, ballast.stat().st_size - room * 4096))
            with trying("full disk at one place of an upload"):
                batch = [f"{number}-{index}".encode() for index in range(1000)]
                with RawUpload(stub, open_upload("s", f"u{number}"), raw_batch(1, batch), finish(len(batch))) as stream:
                    try:
                        stream.opened()
                        stream.acknowledged()
                        done = stream.finished() == len(batch)
                    except grpc.RpcError as error:
                        done = False
                        outcomes.add(failure_of(error).code)
            with trying("full disk at one place of a publish"):
                request_id = f"r{number}"
                try:
                    outcomes.add(service.publish("s", request_id=request_id).state)
                except StorageFull:
                    outcomes.add("refused")
                    assert request_id not in [row.request_id for row in read_ledger(process.state).charges]
                ballast.unlink()
                assert wait_for(lambda: all(row.state != "pending" for row in read_ledger(process.state).charges), 5.0)
                assert all(row.state != "lost" for row in read_ledger(process.state).charges)
            service.add("s", batch, upload_id=f"again-{number}" if not done else f"u{number}")
            elements += batch
            assert raw_vector(process.state, "s") == expected_vector(shape_of_set(service.get_set("s")), elements)
    expected = {"refused", "published", "RESOURCE_EXHAUSTED"}
    assert expected <= outcomes <= expected | {"pending"}


@pytest.mark.faults
def test_redis_is_mended_while_the_disk_is_full(process: ServiceProcess, redis: RedisServer, trying: Trying) -> None:
    """Releases that are charged and on disk need no space to reach their readers, also with uploads to drop."""
    with process.connect() as service:
        assert service.publish("s", request_id="r").state == "published"
        before = redis_content(redis.url)
        ballast = fill_up(process.state.parent)
        with trying("Redis emptied while the disk is full"):
            redis.command("FLUSHALL")
            assert wait_for(lambda: redis_content(redis.url) == before, 10.0)
        ballast.unlink()


@pytest.mark.faults
def test_a_start_on_a_full_disk(process: ServiceProcess, redis: RedisServer, trying: Trying) -> None:
    """Killed, and started with no space: it serves what it has, or says why not; nothing is lost."""
    with process.connect() as service:
        assert service.publish("s", request_id="r").state == "published"
    process.kill()
    ballast = fill_up(process.state.parent)
    with trying("start on a full disk"):
        process.start()
        with process.connect() as service:
            assert service.publish("s", request_id="r").sequence == 1
            with pytest.raises(StorageFull):
                service.publish("s", request_id="r2")
            ballast.unlink()
            assert service.publish("s", request_id="r2").sequence == 2


def test_deleting_a_set_on_a_full_disk_gives_space_back(process: ServiceProcess, trying: Trying) -> None:
    """It has space kept aside for it, again and again; what it frees others may use."""
    with process.connect() as service:
        for name in ("a", "b"):
            service.create_set(name, size=1000, epsilon=1, adjacency="add-remove")
            service.add(name, [b"%d" % number for number in range(50_000)])
        ballast = fill_up(process.state.parent)
        with trying("a new set on a full disk"), pytest.raises(StorageFull):
            service.create_set("c", size=1000, epsilon=1, adjacency="add-remove")
        for name in ("a", "b"):
            with trying("a set deleted on a full disk"):
                service.delete_set(name)
        service.create_set("c", size=1000, epsilon=1, adjacency="add-remove")
        assert {found.name for found in service.list_sets()} == {"s", "c"}
        ballast.unlink()
