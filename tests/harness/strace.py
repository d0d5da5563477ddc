"""strace on a running service: what it asks of the kernel, and faults in the answers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_LINE = re.compile(r"^\d+ +(?P<name>[a-z0-9_]+)\((?P<arguments>.*)$")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call, its arguments as strace writes them, descriptors with their paths."""

    name: str
    arguments: str


def require_strace() -> None:
    """Skip without strace, or without the right to trace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("tracing processes is not allowed here")


@contextmanager
def traced(pid: int, calls: str, log: Path, inject: str = "") -> Iterator[None]:
    """Trace all threads of ``pid``. calls: comma-separated. inject: such as ``signal=KILL:when=3``, counted in each thread."""
    options = ["-e", f"inject={calls}:{inject}"] if inject else []
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "96", "-o", str(log), "-e", f"trace={calls}", *options, "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    with tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            tracer.kill()
            pytest.skip(f"strace cannot attach: {line.strip()}")
        try:
            yield
        finally:
            tracer.terminate()


def read_calls(log: Path) -> list[Call]:
    """What was traced, in the order in which the calls began."""
    matches = (_LINE.match(line) for line in log.read_text(errors="replace").splitlines())
    return [Call(match["name"], match["arguments"]) for match in matches if match]
