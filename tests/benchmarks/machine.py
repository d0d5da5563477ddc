"""What the figures were measured on and with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path


def describe_machine() -> dict[str, object]:
    """Processor, cores, memory, kernel, Python, and the load average of the last minute."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "file_system": _file_system(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions; "missing" for what is not."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _file_system() -> str:
    """Of the current folder, where the state folders of the benchmarks are made."""
    done = subprocess.run(["stat", "--file-system", "--format=%T", "."], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
