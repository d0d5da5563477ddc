"""How long the command and the library take to start, over an interpreter that does nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_most
from benchmarks.stopwatch import take_turns

_PROGRAMS = {
    "nothing": ("-c", "pass"),
    "import": ("-c", "import veilset"),
    "help": ("-m", "veilset", "--help"),
}
_REPEATS = 15


def _start(arguments: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def measure(run: Run) -> Measured:
    """Differences in milliseconds, turn by turn."""
    repeats = max(run.repeats, _REPEATS // run.divisor)
    timings = take_turns({name: partial(_start, given) for name, given in _PROGRAMS.items()}, repeats)
    found: Measured = {}
    for name in ("help", "import"):
        pairs = zip(timings.seconds[name], timings.seconds["nothing"], strict=True)
        more = [1e3 * (ours - theirs) for ours, theirs in pairs]
        texts = (timings.text(name), timings.text("nothing"))
        found[f"startup/{name}"] = Ratio(statistics.median(more), min(more), max(more), len(more), *texts)
    return found


FAMILY = Family(
    "startup",
    (
        Row("startup/help", "start of `veilset --help`", "python -c pass", at_most(150, " ms more")),
        Row("startup/import", "`import veilset`", "python -c pass", at_most(120, " ms more")),
    ),
    measure,
    {},
)
