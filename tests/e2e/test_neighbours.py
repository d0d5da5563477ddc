"""A producer within its limits neither fills the service's memory, nor starves another, nor makes a shortage look like damage.

The long runs (make security) watch the clock, and want a machine that does nothing else.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from bad_inputs import creation

from harness.attacks import Attack
from harness.hostile_http2 import ADD_ELEMENTS, HostileConnection
from harness.patience import SECONDS
from harness.programs import wait_until
from harness.raw_calls import upload
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2

GROWN_MIB = 512
MIB = 1 << 20
RESOURCE_EXHAUSTED, UNAVAILABLE = "8", "14"


@contextmanager
def peak_mib(service: ServiceProcess) -> Iterator[list[float]]:
    """How much more memory than before the service has at most while the block runs; one number, at its end."""
    process, over = psutil.Process(service.pid), threading.Event()
    before = process.memory_info().rss
    found: list[float] = []
    highest = [before]

    def watch() -> None:
        while not over.wait(0.005):
            highest[0] = max(highest[0], process.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
        found.append((highest[0] - before) / MIB)


@pytest.mark.parametrize("streams", [30, pytest.param(128, marks=pytest.mark.security)])
def test_heavy_messages_stay_within_memory(tmp_path: Path, streams: int) -> None:
    """Of one principal, each the longest that may be, of a million empty elements, of parts, packed by gzip: all refused or held,
    and the service is there afterwards."""
    state = tmp_path / "state"
    admin, bad = new_token(state, "admin"), new_token(state, "producer", name="bad")
    with running(ServiceProcess(state)) as service, stub_with(service, admin) as stub:
        stub.CreateSet(creation("honest"))
        upload(stub, "honest", [[b"a"]], "before")
        with peak_mib(service) as grown, Attack("heavy", service.address, bad, streams) as attack:
            ends = attack.ends(180)
        print(f"{streams} heavy messages: {ends}, {grown[0]:.0f} MiB more at most")
        upload(stub, "honest", [[b"b"]], "after")
    assert sum(ends.values()) == streams
    assert set(ends) <= {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "ABORTED"}  # the last for want of a finish
    assert grown[0] < GROWN_MIB


@pytest.mark.security
def test_one_greedy_principal_starves_no_other(tmp_path: Path) -> None:
    """A hundred streams of ordinary batches, half of them of text that is slow to normalize. Another's uploads of one element
    take at most five times as long as alone, and 50 ms."""
    state = tmp_path / "state"
    honest, bad = new_token(state, "admin", name="honest"), new_token(state, "producer", name="bad")
    with running(ServiceProcess(state)) as service, stub_with(service, honest) as stub:
        stub.CreateSet(creation("honest"))
        slow = creation("slow")
        slow.normalization = parameters_pb2.NORMALIZATION_NFC_V1
        stub.CreateSet(slow)

        def times(count: int, name: str) -> list[float]:
            found = []
            for number in range(count):
                began = time.perf_counter()
                upload(stub, "honest", [[b"%d" % number]], f"{name} {number}")
                found.append(1000 * (time.perf_counter() - began))
            return sorted(found)

        alone = times(100, "alone")
        with Attack("greedy", service.address, bad, 100) as attack:
            attack.wait_until_ready()
            time.sleep(3)
            beside = times(100, "beside")
            assert attack.running
    print(f"alone p50 {alone[50]:.0f} p99 {alone[98]:.0f} ms, beside p50 {beside[50]:.0f} p99 {beside[98]:.0f} ms")
    assert beside[98] <= 5 * alone[98] + 50


FEW_DESCRIPTORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from veilset_server.rpc import server
server.IDLE_CONNECTION_MILLISECONDS = 1000
from veilset.cli.main import main
main()
"""


def test_idle_connections_damage_nothing_and_are_closed(tmp_path: Path) -> None:
    """A hundred of them where there are 80 descriptors: who is connected is served as ever, with sets, uploads and a ledger; and
    once those that are idle have been closed, so is who comes anew."""
    program = ("-c", FEW_DESCRIPTORS.format(limit=80))
    with running(ServiceProcess(tmp_path / "state", program=program)) as service, service.stub() as stub:
        stub.CreateSet(creation("one"))
        crowd = []
        try:
            for _ in range(100):
                try:
                    crowd.append(HostileConnection(service.address, seconds=5.0))
                except OSError:
                    continue
            for number in range(5):
                stub.CreateSet(creation(f"more-{number}"))
                upload(stub, "one", [[b"a"]], f"u{number}")
            assert psutil.Process(service.pid).num_fds() < 80

            def comes_anew() -> bool:
                with service.stub() as other:
                    try:
                        other.ListSets(pb.ListSetsRequest(), timeout=5)
                    except grpc.RpcError:
                        return False
                    return True

            wait_until(comes_anew)
        finally:
            for connection in crowd:
                connection.socket.close()
        assert "STATE_CORRUPTED" not in service.log_path.read_text()


SHORT = """
import errno, sys
from veilset_server.usecases.sets import Sets
before = Sets.create

def create(self, wanted, *more):
    if wanted.name == "short":
        raise {error}
    return before(self, wanted, *more)

Sets.create = create
from veilset.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (f"OSError({errno.EMFILE}, 'too many')", "file descriptors"),
        (f"OSError({errno.ENOMEM}, 'none')", "memory"),
        ("MemoryError", "memory"),
        ('RuntimeError("can\'t start new thread")', "threads"),
    ],
)
def test_a_shortage_is_told_as_one(tmp_path: Path, error: str, what: str) -> None:
    """RESOURCE_EXHAUSTED, which passes; not an internal error, and not damage."""
    program = ("-c", SHORT.format(error=error))
    with running(ServiceProcess(tmp_path / "state", program=program)) as service, service.stub() as stub:
        with pytest.raises(grpc.RpcError) as refused:
            stub.CreateSet(creation("short"), timeout=SECONDS)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"out of {what}" in str(refused.value.details())
        stub.CreateSet(creation("other"), timeout=SECONDS)


def test_streams_are_refused_where_no_thread_can_be_made(tmp_path: Path) -> None:
    """Other calls are served by those that there are."""
    program = ("-c", NO_THREADS)
    with running(ServiceProcess(tmp_path / "state", program=program)) as service, service.stub() as stub:
        stub.CreateSet(creation("one"), timeout=SECONDS)
        with HostileConnection(service.address) as connection:
            streams = [connection.open(ADD_ELEMENTS) for _ in range(THREADS + 2)]
            connection.flush()
            wait_until(lambda: connection.read(0.1) and RESOURCE_EXHAUSTED in connection.statuses.values())
            assert set(connection.statuses.values()) <= {
                RESOURCE_EXHAUSTED,
                UNAVAILABLE,
            }  # or taken back, if it was slow
            for stream in [stream for stream in streams if stream not in connection.statuses][: THREADS // 2]:
                connection.reset(stream)
            connection.flush()
            stub.CreateSet(creation("two"), timeout=SECONDS)


THREADS = 8
NO_THREADS = """
import threading
from veilset_server.rpc import call

real = call.CallPool._add_thread

def add(self):
    if len(self) >= 8:
        raise RuntimeError("can't start new thread")
    real(self)

call.CallPool._add_thread = add
call.REFUSING_THREADS = 4
from veilset.cli.main import main
main()
"""
