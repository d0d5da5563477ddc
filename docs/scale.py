"""The sizing table of docs/scale.md: ``python docs/scale.py`` prints it from the rates that stand in that document.

``python docs/scale.py --measure`` prints rates of the machine it runs on instead, to be put there; it starts a service of its
own in a temporary folder (needs the extras server and embedded) and takes some minutes. ``--measure-growth`` prints the
table of section 7 in the same way, in a quarter of an hour; ``--plot`` draws docs/scale.png from that table (needs matplotlib).
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path

import veilset
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.encodings.planning import Plan, PlanRequest
from veilset.core.params import MAX_BITS, Adjacency, PrivacyParameters

DOCUMENT = Path(__file__).with_name("scale.md")
SIZES = [10**power for power in range(6, 12)]
PRIVACY = PrivacyParameters(epsilon=3.0, delta=1e-13, adjacency=Adjacency.ADD_REMOVE)
BITS_PER_ELEMENT = (None, 8.0)  # the planner's choice, and what is enough for most of it
KEPT_RELEASES = 2
FIXED_SERVICE, FIXED_READER = 256 << 20, 32 << 20  # of one position an element, which both ends here have
SET_COPIES = 2  # what the set holds, and the compaction that takes its place
DIGEST_BYTES = 8
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Rates:
    """What one machine does in a second, from the client's call to its return."""

    add: float  # elements from a list, hashed, through gRPC, on disk
    noise: float  # bits perturbed, hashed, on disk, charged
    deliver: float  # bytes from disk into Redis, visible
    open: float  # bytes from Redis into a reader, verified


def read_rates(document: str) -> Rates:
    """The rates that the document's own table tells: | `name` | value | …"""
    told = {name: float(value) for name, value in re.findall(r"^\| `(\w+)` \| ([0-9.e]+) \|", document, re.MULTILINE)}
    return Rates(**{field.name: told[field.name] for field in fields(Rates)})


def table(rates: Rates) -> str:
    """The sizing table in Markdown."""
    head = (
        "| elements | m, bits | a vector | TPR / FPR | service: memory / disk | Redis | reader | add, one producer "
        "| publish | open |"
    )
    rows = [row(size, each, rates) for each in BITS_PER_ELEMENT for size in SIZES]
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])


def row(size: int, bits_per_element: float | None, rates: Rates) -> str:
    """One size. Redis holds the releases that are kept, and the next one before an old one goes."""
    chosen: Plan = plan(PlanRequest(size, PRIVACY, bits_per_element=bits_per_element))
    length = chosen.bytes
    disk = length * (KEPT_RELEASES + 1) + SET_COPIES * DIGEST_BYTES * size
    cells = [
        f"10^{len(str(size)) - 1}",
        f"{8 * length:.3g}{' (the most)' if 8 * length > MAX_BITS * 0.9 else ''}",
        amount(length),
        f"{chosen.true_positive_rate:.3f} / {chosen.false_positive_rate:.3f}",
        f"{amount(FIXED_SERVICE)} / {amount(disk)}",
        amount(length * (KEPT_RELEASES + 1)),
        amount(length + FIXED_READER),
        duration(size / rates.add),
        duration(8 * length / rates.noise + length / rates.deliver),
        duration(length / rates.open),
    ]
    return "| " + " | ".join(cells) + " |"


def amount(count: float) -> str:
    """Bytes in binary units, two digits."""
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1000:
            return f"{count:.2g} {unit}" if count < 100 else f"{round(count, -1):.0f} {unit}"
    return f"{count / 1024:.2g} TiB"


def duration(seconds: float) -> str:
    """Seconds in a unit that people read, two digits."""
    for unit, length in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{max(seconds, 0.01):.2g} s"


# Measuring


def measure(bits: int = 400_000_000, elements: int = 2_000_000) -> dict[str, float]:
    """Medians of `REPEATS` runs, each in a set of its own."""
    addresses = [f"user{number}@example.com" for number in range(elements)]
    with started_service() as (address, redis), veilset.connect(address) as service:
        runs = [measure_once(service, redis, f"set-{number}", addresses, bits) for number in range(REPEATS)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure_once(service: veilset.Service, redis: str, name: str, addresses: list[str], bits: int) -> dict[str, float]:
    """The rates of one set, from the first element to a reader."""
    size = len(addresses)
    made = service.create_set(
        name, size=size, epsilon=3, adjacency="add-remove", bits=bits, hashes=1, allow_poor_utility=True
    )
    length = made.encoding.vector_bytes
    found = {
        "add": size / seconds(lambda: service.add(name, addresses)),
        "noise": bits / seconds(lambda: service.publish(name, wait=False)),
        "deliver": length / seconds(lambda: wait_until(lambda: service.get_release(name).state == "published")),
        "open": length / seconds(lambda: veilset.open(redis, name)),
    }
    service.delete_set(name)
    return found


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def wait_until(holds: Callable[[], bool]) -> None:
    """Look every few milliseconds."""
    while not holds():
        time.sleep(0.005)


# Growth

GROWTH = {
    "n": ("elements of one replacement", [10**4, 10**5, 10**6, 10**7]),
    "m": ("bits of a publish", [10**6, 10**7, 10**8, 10**9]),
    "sets": ("sets in the service, publish of one", [10, 100, 1000, 5000]),
    "releases": ("releases of a set, publish of its next", [1, 10, 100, 1000]),
}


def measure_growth() -> Iterator[tuple[str, int, float]]:
    """What grows, how far, and the seconds of one call there: the median of `REPEATS`."""
    with started_service("--max-sets-per-principal", "20000") as (address, _), veilset.connect(address) as service:
        for size in GROWTH["n"][1]:
            addresses = [f"user{number}@example.com" for number in range(size)]
            create(service, "n")
            yield "n", size, median_seconds(lambda: service.replace("n", addresses))  # noqa: B023 - called at once
            service.delete_set("n")
        for size in GROWTH["m"][1]:
            create(service, "m", size)
            service.add("m", ["element"])
            yield "m", size, median_seconds(lambda: service.publish("m"))
            service.delete_set("m")
        publish_small(service, "releases")
        for size in GROWTH["releases"][1]:
            for _ in range(size - service.budget("releases").charges):
                service.publish("releases")
            yield "releases", size, median_seconds(lambda: service.publish("releases"))
        for before, size in pairwise([0, *GROWTH["sets"][1]]):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(partial(publish_small, service), [f"sets{number}" for number in range(before, size)]))
            yield "sets", size, median_seconds(lambda: service.publish("sets0"))


def create(service: veilset.Service, name: str, bits: int = 40_000) -> None:
    """A set with a budget for many releases."""
    service.create_set(
        name,
        size=1000,
        bits=bits,
        hashes=1,
        epsilon=0.1,
        adjacency="add-remove",
        budget_epsilon=200,
        allow_poor_utility=True,
    )


def publish_small(service: veilset.Service, name: str) -> None:
    """A set with 50 elements and a release."""
    create(service, name)
    service.add(name, [f"{name} {number}" for number in range(50)])
    service.publish(name)


def median_seconds(work: Callable[[], object]) -> float:
    """Of `REPEATS` runs."""
    return statistics.median(seconds(work) for _ in range(REPEATS))


def read_growth(document: str) -> dict[str, list[tuple[float, float]]]:
    """The points of the document's own table: | `what` | size | seconds |."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in GROWTH}
    for name, size, taken in re.findall(r"^\| `(\w+)` \| ([0-9]+) \| ([0-9.]+) s \|$", document, re.MULTILINE):
        found[name].append((float(size), float(taken)))
    return found


def plot(growth: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """A panel for each thing that grows; both axes logarithmic, and the same seconds in all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    panels = figure.subplots(1, len(GROWTH), sharey=True)
    for axes, (name, (label, _)) in zip(panels, GROWTH.items(), strict=True):
        axes.loglog(*zip(*growth[name], strict=True), marker="o", markersize=4)
        axes.set_xlabel(label, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds", fontsize=8)
    figure.savefig(path, dpi=120)


@contextmanager
def started_service(*options: str) -> Iterator[tuple[str, str]]:
    """A service with an embedded Valkey, in a folder that goes with it: its address and the Redis URL."""
    with tempfile.TemporaryDirectory(prefix="veilset-scale-") as folder:
        command = [
            sys.executable,
            "-m",
            "veilset",
            "serve",
            "--state",
            f"{folder}/state",
            "--port",
            "0",
            "--json",
            *options,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield ready["address"], ready["redis"]
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    """Print the table, or rates for it."""
    match sys.argv[1:]:
        case ["--measure"]:
            for name, value in measure().items():
                print(f"| `{name}` | {value:.2g} |")
        case ["--measure-growth"]:
            for name, size, taken in measure_growth():
                print(f"| `{name}` | {size} | {taken:.4f} s |", flush=True)
        case ["--plot"]:
            plot(read_growth(DOCUMENT.read_text()), DOCUMENT.with_suffix(".png"))
        case _:
            print(table(read_rates(DOCUMENT.read_text())))


assert CHUNK_BYTES == 1 << 20, "docs/scale.md says 1 MiB"
if __name__ == "__main__":
    main()
