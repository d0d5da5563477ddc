"""What a process holds over time: memory, descriptors, threads; and whether that grew."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

LARGEST_GROWTH = 0.05
SPARE = 3
"""Descriptors and threads more at the end than at the beginning that are chance: connections that are just closing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """At ``seconds`` after the beginning: resident bytes, of them not mapped from files, descriptors, threads."""

    seconds: float
    resident: int
    anonymous: int
    descriptors: int
    threads: int
    idle: bool


class Watch:
    """Samples a process once a second, and when told that it is idle."""

    def __init__(self, pid: int) -> None:
        self.samples: list[Sample] = []
        self._process = psutil.Process(pid)
        self._began = time.monotonic()
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """In a thread of its own."""
        thread = threading.Thread(target=self._run, name="watch")
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            self.sample()

    def sample(self, *, idle: bool = False) -> None:
        """Take one."""
        with self._process.oneshot():
            memory = self._process.memory_info()
            self.samples.append(
                Sample(
                    time.monotonic() - self._began,
                    memory.rss,
                    memory.rss - memory.shared,
                    self._process.num_fds(),
                    self._process.num_threads(),
                    idle,
                )
            )

    def after(self, warm_up_seconds: float) -> list[Sample]:
        """The samples behind the warm-up."""
        return [sample for sample in self.samples if sample.seconds >= warm_up_seconds]


@dataclass(frozen=True, slots=True)
class Growth:
    """From the first to the last third behind the warm-up: medians of memory under load, of descriptors and threads when idle."""

    resident: tuple[float, float]
    anonymous: tuple[float, float]
    descriptors: tuple[float, float]
    threads: tuple[float, float]

    def complaints(self) -> list[str]:
        """What grew that must not."""
        memory = [("resident memory", self.resident), ("anonymous memory", self.anonymous)]
        counts = [("descriptors", self.descriptors), ("threads", self.threads)]
        return [
            *(f"{name} {a:.0f} -> {b:.0f}" for name, (a, b) in memory if b > (1 + LARGEST_GROWTH) * a),
            *(f"{name} {a:.0f} -> {b:.0f}" for name, (a, b) in counts if b > a + SPARE),
        ]


def by_tenths(samples: list[Sample]) -> list[float]:
    """Median of anonymous memory in each tenth of the time, MiB: whether it climbs or has settled."""
    tenth = max(1, len(samples) // 10)
    parts = [samples[start : start + tenth] for start in range(0, len(samples), tenth)][:10]
    return [statistics.median(sample.anonymous for sample in part) / 2**20 for part in parts]


def growth(samples: list[Sample]) -> Growth:
    """Compare the first third with the last."""
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    idle_first, idle_last = ([s for s in part if s.idle] or part for part in (first, last))

    def medians(of: str, a: list[Sample], b: list[Sample]) -> tuple[float, float]:
        return statistics.median(getattr(s, of) for s in a), statistics.median(getattr(s, of) for s in b)

    return Growth(
        resident=medians("resident", first, last),
        anonymous=medians("anonymous", first, last),
        descriptors=medians("descriptors", idle_first, idle_last),
        threads=medians("threads", idle_first, idle_last),
    )
