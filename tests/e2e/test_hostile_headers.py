"""Header blocks that no client would send: whatever is in them, the port stays, and honest callers are served.

gRPC's asyncio server ends for good by the first of them: a path that is not UTF-8, from anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from bad_inputs import creation
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.attacks import Attack
from harness.patience import SECONDS
from harness.pulse import Pulse
from harness.raw_headers import GOOD, VALUES, RawConnection, cases
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with

IDLE_STREAMS = 200
PACKETS = 10_000
P99_MILLISECONDS = 100
CASES = list(cases())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One service for all: what one packet leaves behind the next one finds."""
    state = tmp_path_factory.mktemp("headers") / "state"
    new_token(state, "admin")
    with running(ServiceProcess(state)) as made:
        yield made


def serves(service: ServiceProcess) -> bool:
    """Whether a health check over a new connection is answered well, by the process that was started."""
    with grpc.insecure_channel(service.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        return bool(answer.status == 1) and psutil.pid_exists(service.pid)


def test_the_good_block_is_answered(service: ServiceProcess) -> None:
    """In one frame and byte by byte: so that what is wrong in the others is what they are named for."""
    good = [header for header in GOOD if header[0] not in (b"grpc-internal-encoding-request", b"host")]
    for pieces in (1, 2, 1 << 12):
        with RawConnection(service.address) as connection:
            assert connection.call(good, pieces) == "answered"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_strange_path_ends_no_service(service: ServiceProcess, value: bytes) -> None:
    """Nor any call of others."""
    block = [(name, value if name == b":path" else right) for name, right in GOOD]
    with RawConnection(service.address) as connection:
        assert connection.call(block) in ("answered", "reset", "goaway", "closed")
    assert serves(service)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.security)])
def test_no_header_block_ends_the_service(service: ServiceProcess, step: int) -> None:
    """Each header and pseudo-header: not UTF-8, NUL, empty, 64 KiB, upper case, twice, missing. None is left without an end."""
    ends: Counter[str] = Counter()
    for number, (what, block) in enumerate(CASES[::step]):
        with RawConnection(service.address) as connection:
            end = connection.call(block, pieces=1 + 2 * (number % 2))
        assert end != "silence", what
        ends[end] += 1
    assert serves(service)
    assert ends["answered"] > 20 / step
    assert ends["reset"] > 0


def test_the_log_is_not_flooded(service: ServiceProcess) -> None:
    """gRPC says something of each packet that it cannot make out: a few lines a second are let through, without the bytes."""
    before = service.log_path.stat().st_size
    block = [(name, b"/\xff\xfe/secret-path" if name == b":path" else right) for name, right in GOOD]
    for _ in range(300):
        with RawConnection(service.address) as connection:
            connection.call(block)
    said = service.log_path.read_bytes()[before:]
    assert b"secret-path" not in said
    assert len(said) < 300 * 200


@pytest.mark.security
@pytest.mark.timeout(900)
def test_ten_thousand_packets_beside_idle_streams(tmp_path: Path) -> None:
    """Honest calls all succeed meanwhile, in their usual time, in the same process."""
    honest = new_token(tmp_path / "state", "admin", name="honest")
    idle = new_token(tmp_path / "state", "producer", name="idle")
    options = ["--max-calls-per-principal", str(IDLE_STREAMS), "--idle-seconds", "3600"]
    with running(ServiceProcess(tmp_path / "state", options)) as service:
        pid = service.pid
        with stub_with(service, honest) as stub:
            stub.CreateSet(creation("honest"))
        with Attack("stalled", service.address, idle, IDLE_STREAMS) as streams:
            streams.wait_until_ready()
            with (
                Pulse(service, honest, "honest") as pulse,
                Attack("headers", service.address, None, PACKETS) as attack,
            ):
                ends = attack.ends(600)
            assert streams.running
            assert streams.ends() == {}  # none of them was ended by it
        print(f"{PACKETS} header blocks {ends} beside {IDLE_STREAMS} idle streams: {pulse}")
        assert service.pid == pid
        assert serves(service)
    assert sum(ends.values()) == PACKETS
    assert "silence" not in ends
    assert pulse.failures == []
    assert pulse.p99_milliseconds < P99_MILLISECONDS
