"""Thousands of small sets in one service: created, filled and published, in ten blocks, after each of which memory and open files
are looked at. So what grows with the number of sets shows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil

from benchmarks.remembering import resident
from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_least, at_most
from benchmarks.servers import DELTA, EPSILON, own_service
from benchmarks.stopwatch import timed
from veilset._service.service import Service

_SETS = 10_000
_BLOCKS = 10
_ELEMENTS = 50
_CLIENTS = 4


def measure(run: Run) -> Measured:
    """Sets a second in each block; memory and open files after the last block over those after the first."""
    block = run.size(_SETS) // _BLOCKS
    rates: dict[str, list[float]] = {step: [] for step in _STEPS}
    memory: list[float] = []
    files: list[int] = []
    quota = ("--max-sets-per-principal", str(_SETS))
    with own_service(*quota) as process, process.connect() as service, ThreadPoolExecutor(_CLIENTS) as pool:
        for number in range(_BLOCKS):
            names = [f"customer-{number}-{one}" for one in range(block)]
            for step, work in _STEPS.items():
                rates[step].append(block / timed(partial(_all, pool, partial(work, service), names)))
            memory.append(resident(process.pid))
            files.append(psutil.Process(process.pid).num_fds())
    found: Measured = {}
    for step, several in rates.items():
        median = statistics.median(several)
        note = f"{several[0]:.0f} a second in the first block, {several[-1]:.0f} in the last"
        found[f"sets/{step}"] = Ratio(median, min(several), max(several), _BLOCKS, f"{median:.0f} a second", "", note)
    for name, unit, values in (("memory", " MiB", memory), ("files", "", [float(count) for count in files])):
        ratios = [value / values[0] for value in values]
        texts = (f"{values[-1]:.0f}{unit}", f"{values[0]:.0f}{unit}")
        found[f"sets/{name}"] = Ratio(ratios[-1], min(ratios), max(ratios), 1, *texts)
    return found


def _all(pool: ThreadPoolExecutor, work: Callable[[str], object], names: list[str]) -> None:
    for _ in pool.map(work, names):
        pass


def _create(service: Service, name: str) -> None:
    service.create_set(name, size=1000, epsilon=EPSILON, delta=DELTA, adjacency="add-remove")


def _fill(service: Service, name: str) -> None:
    service.add(name, [f"{name}-{number}" for number in range(_ELEMENTS)])


def _publish(service: Service, name: str) -> None:
    service.publish(name)


_STEPS: dict[str, Callable[[Service, str], None]] = {"create": _create, "fill": _fill, "publish": _publish}
FAMILY = Family(
    "sets",
    (
        Row("sets/create", "10,000 sets created, 4 clients", "", at_least(50, "/s")),
        Row("sets/fill", "50 elements into each, one add, 4 clients", "", at_least(50, "/s")),
        Row("sets/publish", "each published, Redis included, 4 clients", "", at_least(50, "/s")),
        Row("sets/memory", "resident memory of the service with 10,000 sets", "with 1,000", at_most(1.3)),
        Row("sets/files", "open files of the service with 10,000 sets", "with 1,000", at_most(1.1)),
    ),
    measure,
    {},
)
