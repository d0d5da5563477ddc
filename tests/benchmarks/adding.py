"""Adds of one element each, from the call to its return, which means on disk: by one producer, and by several at once."""

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
from benchmarks.stopwatch import percentile, timed
from harness.strace import read_calls, traced
from veilset._service.service import Service

PRODUCERS = (1, 4, 16)
_ALONE = 200
_TRACED = 20
_EACH = 50
_SHARES = {"p50": 0.5, "p99": 0.99}


def measure(run: Run) -> Measured:
    """Rates and times, round by round, each beside what the disk does with a write and a sync."""
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        process = stack.enter_context(own_service())
        sets = Sets(process, 1000)
        stack.callback(sets.service.close)
        name = sets.fresh()
        producers = [stack.enter_context(process.connect()) for _ in range(max(PRODUCERS))]
        pool = stack.enter_context(ThreadPoolExecutor(max(PRODUCERS)))
        for producer in producers:
            producer.add(name, ["warm"])
        syncs: list[list[float]] = []
        calls: dict[int, list[list[float]]] = {count: [] for count in PRODUCERS}
        together: list[float] = []
        for turn in range(run.repeats):
            syncs.append(_sync(place / "file", run.size(_ALONE)))
            for count in PRODUCERS:
                each = run.size(_ALONE if count == 1 else _EACH)
                prefixes = [f"{turn} {count} {number}" for number in range(count)]
                work = [
                    partial(_adds, producer, name, prefix, each)
                    for producer, prefix in zip(producers, prefixes, strict=False)
                ]
                calls[count].append([])
                taken = timed(partial(_all, pool, work, calls[count][-1]))
            together.append(count * each / taken)
        sync = {share: statistics.median(percentile(turn, _SHARES[share]) for turn in syncs) for share in _SHARES}
        found = {"adding/producers": _ratio(together, "a second", f"{1 / sync['p50']:.0f} a second")}
        for count, turns in calls.items():
            for share, part in _SHARES.items():
                milliseconds = [1e3 * percentile(turn, part) for turn in turns]
                found[f"adding/{count}-{share}"] = _ratio(milliseconds, "ms", f"{1e3 * sync[share]:.2g} ms")
        if shutil.which("strace") is None:
            raise MissingSome(found, "strace is not installed")
        with traced(process.pid, "fsync,fdatasync,msync,sync_file_range", place / "trace"):
            _adds(producers[0], name, "traced", _TRACED)
        counted = [call for call in read_calls(place / "trace") if call.name != "sync_file_range"]
        if not counted:
            raise MissingSome(found, "strace saw nothing")
        found["adding/syncs"] = _ratio([len(counted) / _TRACED], "calls", "")
    return found


def _all(pool: ThreadPoolExecutor, work: list[partial[list[float]]], seconds: list[float]) -> None:
    """Do all of it at once; what each call took goes to ``seconds``."""
    for done in [pool.submit(part) for part in work]:
        seconds.extend(done.result())


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
        *(
            Row(
                f"adding/{count}-{share}",
                f"one element a call, {count} producer{'s' if count > 1 else ''}: {share} of a call",
                f"the disk's own sync: {share}",
                at_most(limit, " ms"),
            )
            for count, limits in zip(PRODUCERS, ((20, 50), (20, 50), (60, 120)), strict=True)
            for share, limit in zip(_SHARES, limits, strict=True)
        ),
        Row("adding/producers", "one element a call, 16 producers", "the disk's own sync", at_least(300, "/s")),
        Row("adding/syncs", "sync calls of the service for one add", "none", at_most(4)),
    ),
    measure,
    {},
)
