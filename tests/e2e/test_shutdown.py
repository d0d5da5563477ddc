"""SIGTERM: health says no first, what is open may end, what does not end can be resumed, and the process ends with 0."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest

from harness.health import serves
from harness.programs import Finished, unused_port, veilset, wait_until
from harness.raw_calls import RawUpload, failure_of, finish, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector
from veilset import connect
from veilset._input.columns import BATCH
from veilset._service.endpoint import make_endpoint
from veilset.errors import Unavailable

LONG = "3600"


def create(service: ServiceProcess) -> None:
    """The set of these tests."""
    with service.connect() as connection:
        connection.create_set("set", size=100_000, epsilon=2, adjacency="add-remove")


def test_health_says_no_before_anything_ends(
    start_service: Callable[..., ServiceProcess], veilset_here: Callable[..., Finished]
) -> None:
    """So a load balancer sends nothing new, while calls and streams, even new ones, are answered."""
    service = start_service("--shutdown-delay-seconds", LONG)
    create(service)
    ready = veilset_here("health", "--server", service.address, "--json")
    assert ready.json() == {"server": service.address, "status": "serving"}
    with service.stub() as stub, RawUpload(stub, open_upload("set", "before"), raw_batch(1, [b"a"])) as stream:
        stream.opened()
        stream.acknowledged()
        service.terminate()
        wait_until(lambda: not serves(make_endpoint(service.address)))
        refused = veilset_here("health", "--server", service.address, "--json")
        assert (refused.code, refused.err) == (1, "")
        assert '"not serving"' in refused.out
        stream.send(raw_batch(2, [b"b"]), finish(2))
        assert stream.acknowledged() == (2, 2)
        assert stream.finished() == 2
        with service.connect() as connection:
            assert connection.add("set", [b"c"]).elements == 1
    service.end()
    gone = veilset_here("health", "--server", service.address)
    assert "is it running there" in gone.complaint()


def test_a_producer_that_never_pauses_is_asked_to_come_back(start_service: Callable[..., ServiceProcess]) -> None:
    """Within the drain time, whatever it has left to send; what was acknowledged is there afterwards."""
    service = start_service("--drain-seconds", "2", port=unused_port())
    create(service)
    with service.connect() as connection:
        shape = shape_of_set(connection.get_set("set"))
    sent: list[bytes] = []
    acknowledged = 0
    with service.stub() as stub, RawUpload(stub, open_upload("set", "u")) as stream:
        stream.opened()
        for sequence in itertools.count(1):  # three are always on their way, so the service never waits for us
            batch = [b"%d/%d" % (sequence, number) for number in range(500)]
            sent += batch
            stream.send(raw_batch(sequence, batch))
            if sequence == 10:
                service.terminate()
            if sequence < 3:
                continue
            try:
                acknowledged, _ = stream.acknowledged()
            except grpc.RpcError as error:
                failure = failure_of(error)
                break
    # On a machine that stalls for a second the end of the drain time comes first, which cuts without a word.
    assert (failure.code, failure.metadata) in [
        ("UNAVAILABLE", {"kind": "DRAINING"}),
        ("CANCELLED", {}),
        ("UNAVAILABLE", {}),
    ]
    assert service.wait() == 0
    assert acknowledged >= 7
    service.start()
    with service.stub() as stub, RawUpload(stub, open_upload("set", "u")) as stream:
        held = stream.opened().sequence
        assert held >= acknowledged
        stream.send(finish(500 * held))
        assert stream.finished() == 500 * held
    assert raw_vector(service.state, "set") == expected_vector(shape, sent[: 500 * held])


def test_without_drain_time_streams_are_cut_and_resumed(start_service: Callable[..., ServiceProcess]) -> None:
    """The process ends with 0 and says nothing but lines of JSON; whatever gRPC makes of the cut, the library goes on."""
    service = start_service("--drain-seconds", "0", port=unused_port())
    create(service)

    def elements() -> Iterator[bytes]:
        for number in range(BATCH + 10):
            if number == BATCH + 5:
                service.stop()
                service.start()
            yield b"%d" % number

    with ExitStack() as stack:
        stub = stack.enter_context(service.stub())
        streams = [stack.enter_context(RawUpload(stub, open_upload("set", f"u{number}"))) for number in range(20)]
        for stream in streams:
            stream.opened()
            stream.send(raw_batch(1, [b"a"]))
            assert stream.acknowledged() == (1, 1)
        with service.connect() as connection:
            shape = shape_of_set(connection.get_set("set"))
            assert connection.add("set", elements()).elements == BATCH + 10
        for stream in streams:
            assert stream.failure().code in ("UNAVAILABLE", "CANCELLED")
    expected = [b"%d" % number for number in range(BATCH + 10)]
    assert raw_vector(service.state, "set") == expected_vector(shape, expected)


def test_a_library_gives_up_in_time(start_service: Callable[..., ServiceProcess]) -> None:
    """A service that stays away: Unavailable after the time that the caller set, from the first word or from the middle."""
    service = start_service()
    create(service)

    def elements(stop_at: int) -> itertools.chain[bytes]:
        def stop() -> bytes:
            service.terminate()
            assert service.wait() == 0
            return b"the last"

        return itertools.chain((b"%d" % n for n in range(stop_at)), (stop() for _ in range(1)))

    with service.connect() as connection:
        with pytest.raises(Unavailable):
            connection.add("set", elements(70_000), retry_seconds=0.5)
        with pytest.raises(Unavailable, match="is it running there"):
            connection.add("set", [b"x"], retry_seconds=0)
        with pytest.raises(Unavailable, match="is it running there"):
            connection.add("set", [b"x"], retry_seconds=0.5)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float, service: ServiceProcess, set_name: str) -> None:
    """By its name."""
    with service.connect() as connection, pytest.raises(ValueError, match="retry_seconds"):
        connection.add(set_name, [b"x"], retry_seconds=seconds)


def test_an_upload_waits_for_a_service_that_restarts(start_service: Callable[..., ServiceProcess]) -> None:
    """Begun while it is away, by the library and by the command, which says so; a name that there is not is not waited for."""
    service = start_service(port=unused_port())
    create(service)
    service.stop()
    with service.connect() as connection:
        options = ("--server", service.address, "--retry-seconds", "0")
        assert veilset("add", "set", "-", *options, stdin=b"a\n").code == 1
        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(connection.add, "set", [b"a", b"b"], retry_seconds=120)
            command = pool.submit(
                veilset, "add", "set", "-", *options[:2], stdin=b"c\n", settings={"VEILSET_ADD_RETRY_SECONDS": "120"}
            )
            wait_until(lambda: waiting.running() and command.running())
            time.sleep(2)  # long enough for both to find nobody there
            service.start()
            assert waiting.result().elements == 2
            done = command.result()
            assert done.code == 0, done.err
            assert "cannot reach" in done.err
            assert "trying again for 120 s" in done.err
        assert connection.add("set", [b"d"]).elements == 1
    with connect("tls://no-such-host.invalid:1") as lost, pytest.raises(Unavailable) as refused:
        lost.add("set", [b"x"])
    assert refused.value.details["kind"] == "ENDPOINT"
