"""The service as a real process, and everything that it says."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil

from harness.patience import SECONDS
from harness.programs import environment
from harness.warm import WarmProgram
from veilset._service.service import Service, connect
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


class ServiceProcess:
    """``veilset serve`` on a state folder and a free port; may be stopped, killed and started again on the same two.

    options: of every start; may be changed between two. port: which one, for a service that will be started again; else
    the system chooses. program: what Python runs; by default ``veilset`` is started warm (`harness.warm`). log_path: where
    its standard error goes, over all its starts.
    """

    def __init__(
        self,
        state: Path,
        options: Sequence[str | Path] = (),
        program: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        self.state = state
        self.log_path = state.with_name(state.name + ".log")
        self.address = ""
        self.redis = ""
        self.public_key = ""
        self.metrics = ""
        self._port = port
        self.options = options
        self._program = tuple(program)
        self._process: subprocess.Popen[str] | WarmProgram | None = None
        self._children: list[psutil.Process] = []

    def start(self) -> ServiceProcess:
        """Start, and return once it says that it is ready."""
        self.begin()
        assert self._process is not None
        ready = json.loads(self._first_line(self._process))
        self.address, self.redis, self.public_key = ready["address"], ready["redis"] or "", ready["public_key"]
        self.metrics = ready.get("metrics", "")
        self._children = psutil.Process(self._process.pid).children()
        return self

    def begin(self) -> None:
        """Start, without waiting for what it says."""
        own = ["serve", "--state", str(self.state), "--port", str(self._port), "--json"]
        arguments = [*own, *map(str, self.options)]
        with self.log_path.open("ab") as log, Path(os.devnull).open() as nothing:
            if self._program[:1] in ((), ("-c",)) or not self._program[0].startswith("-"):
                self._process = WarmProgram(
                    arguments, environment(), nothing.fileno(), log.fileno(), program=self._program
                )
            else:  # options of Python itself
                command = [sys.executable, *self._program, *arguments]
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
                )

    def _first_line(self, process: subprocess.Popen[str] | WarmProgram) -> str:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if readable else ""
        if not line:
            self.end()
            raise AssertionError(f"the service did not start: {self.log_path.read_text()[-2000:]}")
        return line

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def started(self) -> bool:
        """Whether it was started and not waited for since."""
        return self._process is not None

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself or by a signal."""
        return self._process is not None and self._process.poll() is None

    @property
    def children(self) -> list[psutil.Process]:
        """The processes that it started: the embedded Valkey, if it has one."""
        return self._children

    def find_children(self) -> list[psutil.Process]:
        """The same, looked for now: of a service that is not ready yet."""
        self._children = psutil.Process(self.pid).children()
        return self._children

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> int:
        """Wait for the end; returns the exit code. It has to have said nothing more on standard output."""
        process, self._process = self._process, None
        assert process is not None
        with process:
            code = process.wait(SECONDS)
            assert process.stdout is not None
            assert process.stdout.read() == ""
        return code

    def stop(self) -> None:
        """SIGTERM; it has to end with 0, its Valkey has to be gone, and its log has to be one of JSON lines."""
        self.terminate()
        assert self.wait() == 0, self.log_path.read_text()[-2000:]
        assert not any(child.is_running() for child in self._children)
        self.log_records()

    def kill(self) -> None:
        """SIGKILL; its Valkey lives on, as after a crash."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def end(self) -> None:
        """Whatever happened, leave no process behind."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        for child in self._children:
            if child.is_running():  # psutil tells a process that took over the id apart
                child.kill()

    def finish(self) -> None:
        """`stop` if it runs."""
        if self._process is not None:
            self.stop()

    def log_records(self) -> list[dict[str, Any]]:
        """Its log, all starts together."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def connect(self) -> Service:
        """The library's connection to it."""
        return connect(self.address)

    @contextmanager
    def stub(self) -> Iterator[MembershipServiceStub]:
        """A bare gRPC stub."""
        with grpc.insecure_channel(self.address) as channel:
            yield MembershipServiceStub(channel)


@contextmanager
def running(process: ServiceProcess) -> Iterator[ServiceProcess]:
    """Start it; at the end of the block it has to end well, unless the block failed. No process is left behind."""
    try:
        yield process.start()
        process.finish()
    finally:
        process.end()
