"""A process that dies leaves no memory behind, unless it was told to."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, os, resource, signal, sys
from veilset_server.process import refuse_core_dumps
resource.setrlimit(resource.RLIMIT_CORE, 2 * (resource.getrlimit(resource.RLIMIT_CORE)[1],))
if sys.argv[1] == "refuse":
    refuse_core_dumps()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
"""


def dies(folder: Path, choice: str) -> tuple[str, list[str]]:
    """What a process that dies of SIGSEGV said of itself, and the files it left."""
    command = [sys.executable, "-c", SCRIPT, choice]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    return done.stdout.strip(), [path.name for path in folder.iterdir()]


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    """No file, by limit and by not being dumpable, which holds where cores are piped to a program."""
    assert dies(tmp_path, "refuse") == ("(0, 0) 0", [])


@pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text().strip()[:1] in ("|", "/")
    or resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY,
    reason="this system puts cores elsewhere, or allows none",
)
def test_a_crash_would_leave_one(tmp_path: Path) -> None:
    """Else the test above would have nothing to find."""
    told, files = dies(tmp_path, "allow")
    assert told == "(-1, -1) 1"
    assert [name for name in files if name.startswith("core")] == files != []
