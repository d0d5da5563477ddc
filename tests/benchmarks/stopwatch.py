"""Measuring several things in turns, so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.rows import Ratio, ratio_of

Work = Callable[[], object]


class Timings:
    """Seconds by name, one for each repeat."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, name: str) -> float:
        """Seconds, the median."""
        return statistics.median(self.seconds[name])

    def times_faster(self, ours: str, theirs: str, weight: float = 1.0, note: str = "") -> Ratio:
        """Their time over ours; weight: our amount of work over theirs, where the two differ."""
        theirs_scaled = [weight * second for second in self.seconds[theirs]]
        return ratio_of(theirs_scaled, self.seconds[ours], self.text(ours), self.text(theirs), note)

    def times_slower(self, ours: str, theirs: str, note: str = "") -> Ratio:
        """Our time over theirs."""
        return ratio_of(self.seconds[ours], self.seconds[theirs], self.text(ours), self.text(theirs), note)

    def text(self, name: str) -> str:
        """The median in words."""
        return seconds_text(self.median(name))


def take_turns(work: Mapping[str, Work], repeats: int, before: Mapping[str, Work] | None = None) -> Timings:
    """Run everything ``repeats`` times in turns, each second time in the opposite order, after one round that does not count.

    before: what has to be done before a piece of work, untimed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    for turn in range(repeats + 1):
        gc.collect()
        for name in names if turn % 2 else reversed(names):
            if before is not None and name in before:
                before[name]()
            taken = timed(work[name])
            if turn:
                seconds[name].append(taken)
    return Timings(seconds)


def timed(work: Work) -> float:
    """Seconds of one run, without the garbage collector's."""
    gc.disable()
    try:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    finally:
        gc.enable()


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least ``share`` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def seconds_text(seconds: float) -> str:
    """Three digits and a unit."""
    return (
        f"{seconds:.3g} s"
        if seconds >= 1
        else f"{1e3 * seconds:.3g} ms"
        if seconds >= 1e-3
        else f"{1e6 * seconds:.3g} µs"
    )
