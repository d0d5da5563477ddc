"""Adds of one element each, from the call to its return, which means on disk: alone, and from 16 producers at once."""

from __future__ import annotations

import os
import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.rows import Family, Measured, MissingSome, Ratio, Row, Run, at_least, at_most
from benchmarks.servers import Sets, folder, own_service
from benchmarks.stopwatch import timed
from harness.strace import read_calls, traced
from veilset._service.service import Service

PRODUCERS = 16
_ALONE = 200
_TRACED = 20
_EACH = 50


def measure(run: Run) -> Measured:
    """Rates and times, round by round, each beside what the disk does with a write and a sync."""
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        process = stack.enter_context(own_service())
        sets = Sets(process, 1000)
        stack.callback(sets.service.close)
        name = sets.fresh()
        producers = [stack.enter_context(process.connect()) for _ in range(PRODUCERS)]
        pool = stack.enter_context(ThreadPoolExecutor(PRODUCERS))
        for producer in producers:
            producer.add(name, ["warm"])
        alone, together, syncs = [], [], []
        each = run.size(_EACH)
        for turn in range(run.repeats):
            syncs.append(statistics.median(_sync(place / "file", run.size(_ALONE))))
            alone.append(statistics.median(_adds(producers[0], name, f"alone {turn}", run.size(_ALONE))))
            work = [partial(_adds, producer, name, f"{turn} {i}", each) for i, producer in enumerate(producers)]
            together.append(PRODUCERS * each / timed(partial(_all, pool, work)))
        sync = statistics.median(syncs)
        found = {
            "adding/alone": _ratio([1e3 * seconds for seconds in alone], "ms", f"{1e3 * sync:.2g} ms"),
            "adding/producers": _ratio(together, "a second", f"{1 / sync:.0f} a second"),
        }
        if shutil.which("strace") is None:
            raise MissingSome(found, "strace is not installed")
        with traced(process.pid, "fsync,fdatasync,msync,sync_file_range", place / "trace"):
            _adds(producers[0], name, "traced", _TRACED)
        counted = [call for call in read_calls(place / "trace") if call.name != "sync_file_range"]
        if not counted:
            raise MissingSome(found, "strace saw nothing")
        found["adding/syncs"] = _ratio([len(counted) / _TRACED], "calls", "")
    return found


def _all(pool: ThreadPoolExecutor, work: list[partial[list[float]]]) -> None:
    for done in [pool.submit(part) for part in work]:
        done.result()


def _adds(service: Service, name: str, prefix: str, count: int) -> list[float]:
    """Seconds of each of so many adds, one after the other."""
    return [timed(partial(service.add, name, [f"{prefix} {number}"])) for number in range(count)]


def _sync(path: Path, count: int) -> list[float]:
    """Seconds of a write of 4 KiB with its sync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write() -> None:
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)

    try:
        return [timed(write) for _ in range(count)]
    finally:
        os.close(descriptor)


def _ratio(values: list[float], unit: str, theirs: str) -> Ratio:
    """Not a ratio but the figure itself: the disk's own stands beside it."""
    median = statistics.median(values)
    return Ratio(median, min(values), max(values), len(values), f"{median:.3g} {unit}", theirs)


FAMILY = Family(
    "adding",
    (
        Row("adding/alone", "one element a call, one producer", "the disk's own sync", at_most(20, " ms")),
        Row("adding/producers", "one element a call, 16 producers", "the disk's own sync", at_least(300, "/s")),
        Row("adding/syncs", "sync calls of the service for one add", "none", at_most(4)),
    ),
    measure,
    {},
)
