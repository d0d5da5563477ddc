"""A server whose loop ends or hangs, for whatever reason: the process ends, says why, and the next one tells when that was."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from harness.metrics import samples, scrape_text
from harness.programs import wait_until
from harness.service_process import ServiceProcess, running

FAULTS = {
    "ends": "raise ValueError('alice@example.org')",
    "hangs": "time.sleep(600)",
    "closes": "socket.socket(fileno=listening()).shutdown(socket.SHUT_RDWR); return True",
}
"""What happens in the thread of gRPC that takes calls in, once the file is there."""

PROGRAM = """
import os, socket, time
os.environ["GRPC_VERBOSITY"] = "NONE"
from pathlib import Path
from grpc import _server
from veilset_server.rpc import server

server.ASK_SECONDS, server.ANSWER_SECONDS = 0.1, 0.5
go_on = _server._process_event_and_continue

def listening():
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            if found.getsockname()[1] == PORT[0]:
                return found.detach()
        found.close()

PORT = []
begin = server.PortWatch.__enter__

def remember(self):
    PORT.append(self._address[1])
    return begin(self)

server.PortWatch.__enter__ = remember

def faulty(state, event):
    if Path({trigger!r}).exists():
        os.unlink({trigger!r})
        {fault}
    return go_on(state, event)

_server._process_event_and_continue = faulty
from veilset.cli.main import main
main()
"""


def metric(service: ServiceProcess, name: str) -> float:
    """Its value now."""
    return samples(scrape_text(service.metrics))[f"veilset_port_{name}_timestamp_seconds", ()]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_port_that_does_not_answer_ends_the_process(tmp_path: Path, fault: str) -> None:
    """With exit code 70 and one line that says why, without the text of what happened; the next start's metrics have the time."""
    state, trigger = tmp_path / "state", tmp_path / "trigger"
    options = ["--metrics-port", "0"]
    program = PROGRAM.replace("{trigger!r}", repr(str(trigger))).replace("{fault}", FAULTS[fault])
    faulty = ServiceProcess(state, options, program=("-c", program)).start()
    try:
        assert metric(faulty, "lost") == 0
        answered = metric(faulty, "answered")
        wait_until(lambda: metric(faulty, "answered") > answered)
        began = time.time()
        trigger.touch()
        assert faulty.wait() == os.EX_SOFTWARE
    finally:
        faulty.end()
    lines = [json.loads(line) for line in faulty.log_path.read_text().splitlines()]
    assert lines[-1]["event"] == "the port does not answer; the process ends, restart it"
    assert lines[-1]["level"] == "critical"
    assert lines[-1]["why"]
    assert "alice" not in faulty.log_path.read_text()
    wait_until(lambda: not any(map(psutil.Process.is_running, faulty.children)))
    with running(ServiceProcess(state, options)) as again:
        lost = metric(again, "lost")
    assert began - 1 <= lost <= time.time()


def test_the_socket_for_health_checks_serves_nothing_else(tmp_path: Path) -> None:
    """It asks for no certificate: so every other call there is refused, with any credentials."""
    with running(ServiceProcess(tmp_path / "state")) as service:
        names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@veilset-" in line]
        (name,) = {name.removeprefix("@") for name in names if f"@veilset-{service.pid}-" in name}
        with grpc.insecure_channel(f"unix-abstract:{name}") as channel:
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(b"", timeout=10)
            for method in ("/veilset.v1.MembershipService/ListSets", "/grpc.health.v1.Health/Watch"):
                call: Any = channel.unary_stream(method)
                with pytest.raises(grpc.RpcError) as refused:
                    list(call(b"", timeout=10))
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
