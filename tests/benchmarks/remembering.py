"""Memory of the service and of a reader: the kernel's own peak of resident pages, over that of the same process at work on next
to nothing.

The allowance is what has to be there, m/8 bytes for a vector, and a fixed rest. What a Python process with its libraries
takes before it holds anything is not part of it, and is told in the notes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_most
from benchmarks.servers import Sets, own_service
from harness.programs import environment
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set

_BITS = 10**9
_ELEMENTS = 10**6
_STREAMS = (1, 4)
_WARMING_UPLOADS = 20
_MIB = 1 << 20
_SERVER_REST, _STREAM_REST, _READER_REST = 64, 8, 32


def measure(run: Run) -> Measured:
    """The service first, then readers of what it published."""
    bits = run.size(_BITS)
    column = pyarrow.array(addresses(run.size(_ELEMENTS)))
    with own_service() as process:
        warm, large = Sets(process, len(column)), Sets(process, len(column), bits, 1)
        _warm(process, warm, column)
        idle = resident(process.pid)
        large.fresh()
        found: Measured = {}
        for streams in _STREAMS:
            peaks = [_peak_of_uploads(process, large, column, streams) for _ in range(run.repeats)]
            found[f"memory/ingest-{streams}"] = _compared(peaks, idle, bits, _SERVER_REST + _STREAM_REST * streams)
        peaks = [_peak_of_publish(process, large) for _ in range(run.repeats)]
        found["memory/perturb"] = _compared(peaks, idle, bits, _SERVER_REST)
        readers = [[_reader(process, sets.name) for sets in (warm, large)] for _ in range(run.repeats)]
        base = statistics.median(first for first, _ in readers) - _vector(warm)
        found["memory/reader"] = _compared([second for _, second in readers], base, bits, _READER_REST)
        for sets in (warm, large):
            sets.service.close()
    return found


def _warm(process: ServiceProcess, sets: Sets, column: Any) -> None:
    """Whatever is loaded once there is work, the compiled kernels too where there are any, belongs to the process."""
    sets.fresh()
    for _ in range(_WARMING_UPLOADS):
        sets.service.add(sets.name, column)
        if "llvmlite" in Path(f"/proc/{process.pid}/maps").read_text():
            break
    sets.service.add(sets.name, column)
    sets.service.publish(sets.name)


def _vector(sets: Sets) -> float:
    return shape_of_set(sets.service.get_set(sets.name)).vector_bytes / _MIB


def _compared(peaks: list[float], idle: float, bits: int, rest: int) -> Ratio:
    """Taken over allowed."""
    allowed = bits / 8 / _MIB + rest
    values = [(peak - idle) / allowed for peak in peaks]
    taken = statistics.median(peaks) - idle
    return Ratio(
        statistics.median(values),
        min(values),
        max(values),
        len(values),
        f"{taken:.0f} MiB",
        f"{allowed:.0f} MiB",
        f"before it {idle:.0f} MiB are resident",
    )


def resident(pid: int, field: str = "VmRSS") -> float:
    """MiB, as the kernel counts them; pages of mapped files are in it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field} in /proc/{pid}/status")


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_of_uploads(process: ServiceProcess, sets: Sets, column: Any, streams: int) -> float:
    _forget_peak(process.pid)
    threads = [threading.Thread(target=sets.service.add, args=(sets.name, column)) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return resident(process.pid, "VmHWM")


def _peak_of_publish(process: ServiceProcess, sets: Sets) -> float:
    _forget_peak(process.pid)
    sets.service.publish(sets.name)
    return resident(process.pid, "VmHWM")


_READ = """
import json, sys
from pathlib import Path
from typing import Any
import veilset
from veilset.core import compiled
compiled.load()
view = veilset.open(sys.argv[1], sys.argv[2])
view.contains_many(f"element {i}" for i in range(200_000))
status = Path("/proc/self/status").read_text().splitlines()
print(json.dumps(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))))
"""


def _reader(process: ServiceProcess, set_name: str) -> float:
    """Peak of a process that opens a release and asks it about 200,000 elements, MiB."""
    command = [sys.executable, "-c", _READ, process.redis, set_name]
    done = subprocess.run(command, check=True, capture_output=True, env=environment())
    return float(json.loads(done.stdout))


_SERVER = "64 MiB + m/8 + 8 MiB a stream"
FAMILY = Family(
    "memory",
    (
        *(
            Row(
                f"memory/ingest-{streams}",
                f"service, m = 10^9, ingest over {streams} stream(s): peak over idle",
                _SERVER,
                at_most(1),
            )
            for streams in _STREAMS
        ),
        Row("memory/perturb", "service, m = 10^9, publish: peak over idle", "64 MiB + m/8", at_most(1)),
        Row(
            "memory/reader",
            "reader, m = 10^9, 200,000 questions: peak over that of a small one",
            "32 MiB + m/8",
            at_most(1),
        ),
    ),
    measure,
    {},
)
