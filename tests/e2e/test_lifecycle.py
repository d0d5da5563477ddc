"""Starting, stopping, crashing and starting again."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import veilset as library
from harness.metrics import scrape
from harness.programs import environment, unused_port, veilset
from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector, redis_content
from veilset._input.columns import BATCH
from veilset._service.service import Service

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "veilset.v1.MembershipService"


def fill(connection: Service) -> None:
    """Two sets, one of them with two releases."""
    for name in ("published", "unpublished"):
        connection.create_set(name, size=1000, epsilon=2, delta=1e-9, adjacency="add-remove", budget_epsilon=6)
        connection.add(name, map(str, range(1000)))
    for _ in range(2):
        connection.publish("published")


def told(connection: Service) -> list[object]:
    """All that the service knows."""
    return [
        list(connection.list_sets()),
        *(list(connection.list_releases(name)) for name in ("published", "unpublished")),
        *(connection.budget(name) for name in ("published", "unpublished")),
    ]


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_restart_carries_on(end: str, start_service: Callable[..., ServiceProcess]) -> None:
    """Sets, budgets, raw vectors and releases stay, byte for byte, under the same addresses; an orphaned Valkey goes."""
    service = start_service("--embedded-port", unused_port(), port=unused_port())
    service.options = ()  # the port is remembered; a default one may be another test's by the time that we are back
    with service.connect() as connection:
        fill(connection)
        before = (told(connection), redis_content(service.redis), raw_vector(service.state, "unpublished"))
        addresses = (service.address, service.redis, service.public_key)
        (orphan,) = service.children
        if end == "SIGKILL":
            service.kill()
            assert orphan.is_running()
        else:
            service.terminate()
            assert service.wait() == 0
            assert not orphan.is_running()
        service.start()
        assert not orphan.is_running()
        assert (service.address, service.redis, service.public_key) == addresses
    with service.connect() as connection:
        connection.reconcile()
        assert (told(connection), redis_content(service.redis), raw_vector(service.state, "unpublished")) == before
        assert connection.publish("published").sequence == 3
        assert library.open(service.redis, "published", public_keys=[service.public_key]).header.sequence == 3


def test_sigterm_lets_open_uploads_come_back(start_service: Callable[..., ServiceProcess]) -> None:
    """Open streams end as unavailable at once, a library's upload goes on by itself, and nothing acknowledged is lost."""
    service = start_service(port=unused_port())
    raw = [b"element %d" % number for number in range(100)]
    restarted = threading.Event()

    def elements() -> Iterator[str]:
        for number in range(2 * BATCH):
            if number == BATCH + 9:
                service.terminate()
                assert service.wait() == 0
                service.start()
                restarted.set()
            yield str(number)

    with service.connect() as connection, service.stub() as stub:
        shape = shape_of_set(connection.create_set("set", size=200_000, epsilon=2, adjacency="add-remove"))
        with RawUpload(stub, open_upload("set", "raw"), raw_batch(1, raw)) as stream:
            stream.opened()
            assert stream.acknowledged() == (1, 100)
            assert connection.add("set", elements()).elements == 2 * BATCH
            assert restarted.is_set()
            failure = stream.failure()
            assert (failure.code, failure.reason) == ("UNAVAILABLE", "UNAVAILABLE")
            assert failure.metadata == {"kind": "DRAINING"}
    with service.stub() as stub, RawUpload(stub, open_upload("set", "raw"), finish(100)) as stream:
        assert stream.opened().sequence == 1
        assert stream.finished() == 100
    expected = [*(str(number).encode() for number in range(2 * BATCH)), *raw]
    assert raw_vector(service.state, "set") == expected_vector(shape, expected)


def test_health_and_reflection_answer(start_service: Callable[..., ServiceProcess]) -> None:
    """As orchestrators and grpcurl ask; a watcher is told before the service goes."""
    service = start_service()
    with grpc.insecure_channel(service.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE, "whatever: it is not read"):
            assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == SERVING

        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        questions = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, described = list(reflection.ServerReflectionInfo(iter(questions)))
        assert SERVICE in [found.name for found in listed.list_services_response.service]
        assert b"AddElements" in described.file_descriptor_response.file_descriptor_proto[0]

        watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert next(watch).status == SERVING
        service.terminate()
        assert next(watch).status == NOT_SERVING
        watch.cancel()
        assert service.wait() == 0


def one_complaint(*arguments: str | Path) -> str:
    """What a ``veilset serve`` that cannot serve says, its log aside, as its only line."""
    done = veilset("serve", *arguments)
    assert done.code == 1
    assert done.out == ""
    (line,) = [line for line in done.err.splitlines() if not line.startswith("{")]
    for record in done.err.splitlines():
        assert record == line or json.loads(record)["level"] == "info"
    assert line.startswith("veilset: ")
    return line


def test_one_state_folder_serves_one_service(service: ServiceProcess) -> None:
    """The second says who holds it, and the first does not notice."""
    said = one_complaint("--state", service.state, "--port", "0")
    assert f"in use by process {service.pid}" in said
    assert str(service.state) in said


def test_one_port_serves_one_service(service: ServiceProcess, tmp_path: Path) -> None:
    """Else both would get some of the calls. The state folder is let go, and no Valkey stays behind."""
    port = service.address.rpartition(":")[2]
    said = one_complaint("--state", tmp_path / "state", "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}" in said
    valkeys = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path / "state" / "valkey")]
    assert valkeys == []


def test_services_that_start_at_once_have_a_valkey_each(start_service: Callable[..., ServiceProcess]) -> None:
    """All look for a free port at the same moment; none may end up publishing into another's."""
    names = ["one", "two", "three"]
    with ThreadPoolExecutor(len(names)) as pool:
        services = list(pool.map(lambda name: start_service(name=name), names))
    assert len({service.redis for service in services}) == len(names)
    for service in services:
        with redis.Redis.from_url(service.redis) as client:
            assert client.config_get("dir") == {"dir": str(service.state / "valkey")}


def test_a_port_taken_by_something_else(tmp_path: Path) -> None:
    """The same."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in one_complaint("--state", tmp_path / "state", "--port", str(port))


def test_an_ipv6_address(start_service: Callable[..., ServiceProcess]) -> None:
    """In brackets or without: a loopback address as any other, in whose ready line the port can be told from it."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    here = ("--host", "::1", "--metrics-host", "[::1]")
    service = start_service(*here, "--metrics-port", "0")
    for address in (service.address, service.metrics):
        assert address.startswith("[::1]:")
    with service.connect() as connection:
        assert list(connection.list_sets()) == []
    assert scrape(service.metrics)
    here, port = ("--host", "[::1]", "--metrics-host", "::1"), service.address.rpartition(":")[2]
    for ports in (("--port", port), ("--port", "0", "--metrics-port", port)):
        said = one_complaint("--state", service.state.with_name("other"), *here, *ports)
        assert f"cannot listen on [::1]:{port}: it is taken" in said


def test_plain_text_off_loopback_needs_saying_so(start_service: Callable[..., ServiceProcess], tmp_path: Path) -> None:
    """Refused before anything is made; with --insecure it serves."""
    every_address = "0.0.0.0"  # noqa: S104 - what the test is about
    done = veilset("serve", "--state", tmp_path / "refused", "--host", every_address)
    assert done.code == 2
    assert "loopback" in done.complaint()
    assert not (tmp_path / "refused").exists()
    service = start_service("--host", every_address, "--insecure")
    with library.connect(service.address.replace(every_address, "127.0.0.1")) as connection:
        assert list(connection.list_sets()) == []


def test_the_ready_line_for_people(tmp_path: Path) -> None:
    """One line on standard output with the three things to know; Ctrl-C ends it with 0 and without a word."""
    command = [sys.executable, "-m", "veilset", "serve", "--state", str(tmp_path / "state"), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        log = [json.loads(record)["event"] for record in process.stderr.read().splitlines()]
    assert process.returncode == 0
    assert log[-1] == "stopped"
    assert "veilset serves on 127.0.0.1:" in line
    assert "redis://127.0.0.1:" in line
    assert np.frombuffer(bytes.fromhex(line.split("key to pin: ")[1]), dtype=np.uint8).size == 32


def test_state_is_for_its_owner_only(service: ServiceProcess) -> None:
    """Folder 0700; every secret file 0600."""
    assert service.state.stat().st_mode & 0o777 == 0o700
    secret = [service.state / "ledger.db", service.state / "signing.pem", *service.state.glob("*/*.bits")]
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
