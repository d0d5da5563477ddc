"""veilset as users run it: in a process of its own, with its output, its exit code and nothing of ours in its environment."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from harness.patience import SECONDS
from harness.warm import WarmProgram

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS_EACH = 1500
_FIRST_PORT = 10_000 + _WORKER % 6 * _PORTS_EACH  # a cluster takes 10,000 above too: all below what systems hand out
_offsets = itertools.count(secrets.randbelow(_PORTS_EACH))
NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as one JSON value; the command has to have ended well."""
        assert self.code == 0, self
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        """Standard output as JSON values, one a line."""
        assert self.code == 0, self
        return [json.loads(line) for line in self.out.splitlines()]

    def complaint(self) -> str:
        """The one line that a failed command says, all of it on standard error."""
        assert self.code in (1, 2), self
        assert self.out == "", self
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        assert lines[0].startswith("veilset: "), self
        return lines[0].removeprefix("veilset: ")


def environment(settings: Mapping[str, str] = NO_SETTINGS) -> dict[str, str]:
    """Our environment without any VEILSET_ setting of the person who runs the tests, with patience, and with ``settings``."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("VEILSET_")}
    return ours | {"VEILSET_HEALTH_TIMEOUT_SECONDS": str(SECONDS)} | dict(settings)


def veilset(
    *arguments: str | bytes | Path | int,
    stdin: bytes = b"",
    cwd: Path | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Finished:
    """Run ``veilset ARGUMENTS`` to its end, started warm (`harness.warm`); ``settings`` go into its environment."""
    texts = [os.fsdecode(a) if isinstance(a, bytes | Path) else str(a) for a in arguments]
    with TemporaryFile() as given, TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
        with WarmProgram(texts, environment(settings), given.fileno(), said.fileno(), cwd) as program:
            out = program.stdout.read()
            code = program.wait(SECONDS)
        said.seek(0)
        return Finished(code, out, said.read().decode())


def unused_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now.

    Below the range that the system hands out to connections, so that none of ours takes it before it is used, and so
    that a cluster's second port, 10,000 higher, exists. Never one that this process had before, or that another of
    pytest's workers might get.
    """
    while True:
        port = _FIRST_PORT + next(_offsets) % _PORTS_EACH
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does; fail if it takes far too long."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
