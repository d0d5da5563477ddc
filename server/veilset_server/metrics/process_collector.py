"""The process and its disk, as far as they do not tell what was uploaded.

prometheus_client's own collector tells too much here: processor seconds grow with every element hashed, and resident
memory counts pages of mapped files. So memory is the process's own (anonymous)
pages, which vectors are not, and there is no processor time. A disk fills with uploads, so only whether it is nearly full
is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

NEARLY_FULL = 0.9
"""Share of the state folder's file system in use from which the disk counts as nearly full."""


class ProcessCollector(Collector):
    """A prometheus_client collector. state: the state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._began = time.time()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        disk = os.statvfs(self._state)
        nearly_full = disk.f_bavail < (1 - NEARLY_FULL) * disk.f_blocks
        return [
            _gauge("veilset_process_start_timestamp_seconds", "When the service started.", self._began),
            _gauge(
                "veilset_process_anonymous_memory_bytes",
                "Memory of the process without mapped files.",
                int(status["RssAnon"].split()[0]) << 10,
            ),
            _gauge("veilset_process_threads", "Threads.", int(status["Threads"])),
            _gauge("veilset_process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - counted, not read
            _gauge("veilset_state_disk_nearly_full", "1 if less than a tenth of the disk is free.", int(nearly_full)),
        ]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
