"""The most memory a process held: its own high-water mark.

Not ru_maxrss, in which a child starts out with what its parent held.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from harness.programs import environment

_PROGRAM = """
import os, sys
from harness.peak_memory import own_peak_bytes
from veilset.cli.main import main
try:
    main()
finally:
    sys.stdout.flush()
    os.write(int(os.environ["PEAK_DESCRIPTOR"]), b"%d" % own_peak_bytes())
"""


def own_peak_bytes() -> int:
    """Of this process, resident, mapped files included."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def peak_of_failure(*arguments: str) -> tuple[int, str]:
    """Run ``veilset ARGUMENTS``, which has to be refused; its peak in bytes, and what it says."""
    with tempfile.TemporaryFile() as errors:
        peak, _ = peak_of_veilset(*arguments, codes=(1, 2), errors=errors)
        errors.seek(0)
        return peak, errors.read().decode()


def peak_of_veilset(
    *arguments: str, codes: tuple[int, ...] = (0,), errors: IO[bytes] | None = None
) -> tuple[int, bytes]:
    """Run ``veilset ARGUMENTS`` in a process of its own, which has to end well; its peak in bytes, and its last output."""
    ours, theirs = os.pipe()
    settings = {"PEAK_DESCRIPTOR": str(theirs), "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(settings),
            pass_fds=[theirs],
        ) as process:
            os.close(theirs)
            assert process.stdout is not None
            last = b""
            while piece := process.stdout.read(1 << 20):
                last = piece[-1000:]
            assert process.wait() in codes
        return int(os.read(ours, 100)), last
    finally:
        os.close(ours)
