"""How time grows with the number of elements, with the length of the vector, and with the number of producers."""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import pyarrow

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_least, between
from benchmarks.servers import Sets, own_service
from benchmarks.stopwatch import Timings, Work, take_turns
from harness.programs import environment
from veilset.core import compiled

_ELEMENTS = 10**6
_BITS = 10**8
_EACH = 10**6
_PRODUCERS = (1, 2, 4, 8)


def measure_growth(run: Run) -> Measured:
    """Uploads of n and 10·n elements from an Arrow column, each into a fresh set made for so many; publishes of sets of m and
    10·m bits."""
    few = pyarrow.array(addresses(run.size(_ELEMENTS)))
    many = pyarrow.concat_arrays([few] * 10)
    compiled.load()
    bits = run.size(_BITS)
    with own_service() as process:
        small, large = Sets(process, len(few)), Sets(process, len(many))
        short, long = Sets(process, len(few), bits, 1), Sets(process, len(few), 10 * bits, 1)
        for vector in (short, long):
            vector.service.add(vector.fresh(), few)
        timings = take_turns(
            {
                "n": lambda: small.service.add(small.name, few),
                "10 n": lambda: large.service.add(large.name, many),
                "m": lambda: short.service.publish(short.name),
                "10 m": lambda: long.service.publish(long.name),
            },
            run.repeats,
            {"n": small.fresh, "10 n": large.fresh},
        )
        for user in (small, large, short, long):
            user.service.close()
    rates = (
        f"{len(many) / timings.median('10 n') / 1e6:.1f} M elements/s",
        f"{10 * bits / timings.median('10 m') / 1e9:.2f} Gbit/s, Redis included",
    )
    return {
        "growth/elements": timings.times_slower("10 n", "n", rates[0]),
        "growth/bits": timings.times_slower("10 m", "m", rates[1]),
    }


def measure_producers(run: Run) -> Measured:
    """Processes that upload a list of their own each, all at once, into one set."""
    each = run.size(_EACH)
    with own_service() as process, ExitStack() as stack:
        sets = Sets(process, max(_PRODUCERS) * each)
        stack.callback(sets.service.close)
        producers = [_start(stack, process.address, each, number) for number in range(max(_PRODUCERS))]
        sets.fresh()

        def all_at_once(count: int) -> None:
            for producer in producers[:count]:
                _tell(producer, sets.name)
            for producer in producers[:count]:
                _wait(producer)

        work: dict[str, Work] = {str(count): partial(all_at_once, count) for count in _PRODUCERS}
        timings = take_turns(work, run.repeats)
    return {f"producers/{count}": _throughput(timings, count, each) for count in _PRODUCERS[1:]}


def _start(stack: ExitStack, address: str, each: int, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.producer", address, str(each), str(number)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    stack.callback(started.wait)
    stack.callback(started.kill)
    _wait(started)
    return started


def _tell(producer: subprocess.Popen[str], set_name: str) -> None:
    assert producer.stdin is not None
    producer.stdin.write(set_name + "\n")
    producer.stdin.flush()


def _wait(producer: subprocess.Popen[str]) -> None:
    assert producer.stdout is not None
    if producer.stdout.readline() != "done\n":
        raise AssertionError("a producer failed")


def _throughput(timings: Timings, count: int, each: int) -> Ratio:
    """Elements a second of ``count`` producers over those of one."""
    pairs = zip(timings.seconds["1"], timings.seconds[str(count)], strict=True)
    values = [count * one / several for one, several in pairs]
    rates = [f"{number * each / timings.median(str(number)) / 1e6:.2f} M/s" for number in (count, 1)]
    return Ratio(statistics.median(values), min(values), max(values), len(values), *rates)


GROWTH = Family(
    "growth",
    (
        Row("growth/elements", "upload of 10^7 elements", "of 10^6", between(9, 11)),
        Row("growth/bits", "publish of 10^9 bits", "of 10^8", between(9, 11)),
    ),
    measure_growth,
    {},
)
PRODUCERS = Family(
    "producers",
    tuple(
        Row(f"producers/{count}", f"{count} producers into one set, elements a second", "1 producer", at_least(0.95))
        for count in _PRODUCERS[1:]
    ),
    measure_producers,
    {},
)
