"""Asking a release about a list, against plain Bloom filters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, MissingSome, Row, Run, at_least
from benchmarks.stopwatch import Work, take_turns
from harness.releases import release_view
from harness.shapes import FilterParameters
from veilset.core import compiled

_ELEMENTS = 1_000_000
_PEER_ERROR = 0.01


def measure(run: Run) -> Measured:
    """A million strings, half of them members; the release of a million elements has one position per element, as the
    planner chooses; the peers have an error rate of 1%."""
    count = run.size(_ELEMENTS)
    everything = addresses(3 * count // 2)
    members, asked = everything[:count], everything[count // 2 :]
    compiled.load()
    view = release_view(members, FilterParameters(39 * count, 1), 3.0)
    work: dict[str, Work] = {"ours": lambda: view.contains_many(asked)}
    absent = []
    for peer, make in _PEERS.items():
        try:
            work[peer] = partial(make(members), asked)
        except ImportError as missing:
            absent.append(str(missing))
    timings = take_turns(work, run.repeats)
    note = f"{count / timings.median('ours') / 1e6:.1f} M strings/s"
    found = {f"ask/{peer}": timings.times_faster("ours", peer, note=note) for peer in _PEERS if peer in work}
    if absent:
        raise MissingSome(found, "; ".join(absent))
    return found


Asking = Callable[[list[str]], object]


def _rbloom(members: list[str]) -> Asking:
    from rbloom import Bloom

    built = Bloom(len(members), _PEER_ERROR)
    built.update(members)
    return lambda asked: [element in built for element in asked]


def _fastbloom(members: list[str]) -> Asking:
    from fastbloom_rs import FilterBuilder

    built = FilterBuilder(len(members), _PEER_ERROR).build_bloom_filter()
    built.add_str_batch(members)
    return lambda asked: built.contains_str_batch(asked)


def _pybloomfilter(members: list[str]) -> Asking:
    from pybloomfilter import BloomFilter

    built = BloomFilter(len(members), _PEER_ERROR)
    built.update(members)
    return lambda asked: [element in built for element in asked]


_PEERS: dict[str, Callable[[list[str]], Asking]] = {
    "rbloom": _rbloom,
    "fastbloom": _fastbloom,
    "pybloomfilter": _pybloomfilter,
}
FAMILY = Family(
    "ask",
    (
        Row("ask/rbloom", "contains_many over 10^6 strings", "rbloom, `in` in a loop", at_least(1)),
        Row("ask/fastbloom", "contains_many over 10^6 strings", "fastbloom-rs contains_str_batch", at_least(0.5)),
        Row("ask/pybloomfilter", "contains_many over 10^6 strings", "pybloomfiltermmap3, `in` in a loop", at_least(1)),
    ),
    measure,
    {"rbloom": "rbloom", "fastbloom-rs": "fastbloom_rs", "pybloomfiltermmap3": "pybloomfilter"},
)
