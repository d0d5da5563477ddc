"""Asking a release about a list, against plain Bloom filters."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import veilset
from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, MissingSome, Ratio, Row, Run, at_least, at_most
from benchmarks.stopwatch import Work, seconds_text, take_turns
from harness.javascript import reader_in
from harness.releases import PUBLIC_KEY, linear_parameters, release_bytes, release_view
from harness.shapes import FilterParameters
from veilset.core import compiled

_ELEMENTS = 1_000_000
_SINGLE = 100_000
_PEER_ERROR = 0.01


def measure(run: Run) -> Measured:
    """A million strings, half of them members; the release of a million elements has one position per element, as the
    planner chooses; the peers have an error rate of 1%."""
    count = run.size(_ELEMENTS)
    everything = addresses(3 * count // 2)
    members, asked = everything[:count], everything[count // 2 :]
    compiled.load()
    shape = FilterParameters(39 * count, 1)
    view = release_view(members, shape, 3.0)
    linear = veilset.open(release_bytes(members, shape, 3.0, encoding=linear_parameters(count, 3.0)))
    single = asked[:: len(asked) // run.size(_SINGLE)]
    work: dict[str, Work] = {
        "ours": lambda: view.contains_many(asked),
        "one": lambda: [element in view for element in single],
        "one-linear": lambda: [element in linear for element in single],
    }
    absent = []
    for peer, make in _PEERS.items():
        try:
            work[peer] = partial(make(members), asked)
        except ImportError as missing:
            absent.append(str(missing))
    timings = take_turns(work, run.repeats)
    note = f"{count / timings.median('ours') / 1e6:.1f} M strings/s"
    found = {f"ask/{peer}": timings.times_faster("ours", peer, note=note) for peer in _PEERS if peer in work}
    theirs = seconds_text(timings.median("rbloom") / len(asked)) if "rbloom" in work else ""
    for name in ("one", "one-linear"):
        each = [1e6 * seconds / len(single) for seconds in timings.seconds[name]]
        text = seconds_text(timings.median(name) / len(single))
        found[f"ask/{name}"] = Ratio(statistics.median(each), min(each), max(each), len(each), text, theirs)
    try:
        found |= _in_node(run, members, asked)
    except FileNotFoundError as missing:
        absent.append(str(missing))
    if absent:
        raise MissingSome(found, "; ".join(absent))
    return found


def _in_node(run: Run, members: list[str], asked: list[str]) -> Measured:
    """Millions of elements in a second of the processor's time, by the JavaScript reader."""
    shapes = {"bloom": None, "linear": linear_parameters(len(members), 3.0)}
    found = {}
    with TemporaryDirectory() as name:
        folder = reader_in(Path(name))
        (folder / "ask.mjs").write_text(_NODE)
        for encoding, parameters in shapes.items():
            shape = FilterParameters(39 * len(members), 1)
            (folder / "release").write_bytes(release_bytes(members, shape, 3.0, encoding=parameters))
            command = ["node", "ask.mjs", PUBLIC_KEY.hex(), str(max(3, run.repeats))]
            done = subprocess.run(
                command, cwd=folder, input="\n".join(asked), capture_output=True, text=True, check=True
            )
            rates = [len(asked) / microseconds for microseconds in json.loads(done.stdout)]
            middle = statistics.median(rates)
            texts = (f"{len(asked) / middle / 1e6:.2f} s", "")
            found[f"ask/node-{encoding}"] = Ratio(middle, min(rates), max(rates), len(rates), *texts)
    return found


_NODE = """
import { readFileSync } from "node:fs";
import { openRelease } from "./index.js";

const [key, repeats] = process.argv.slice(2);
const asked = readFileSync(0, "utf-8").split("\\n");
const release = openRelease(readFileSync("release"), { publicKeys: [key] });
const taken = Array.from({ length: Number(repeats) }, () => {
  const start = process.cpuUsage();
  release.hasMany(asked);
  const { user, system } = process.cpuUsage(start);
  return user + system;
});
console.log(JSON.stringify(taken));
"""
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
        Row("ask/one", "`x in view`, one str", "rbloom, `in`", at_most(2, " µs")),
        Row("ask/one-linear", "`x in view` of a linear release, one str", "rbloom, `in`", at_most(6, " µs")),
        Row("ask/node-bloom", "hasMany in Node, bloom, processor time", "", at_least(1, " M/s")),
        Row("ask/node-linear", "hasMany in Node, linear, processor time", "", at_least(1, " M/s")),
    ),
    measure,
    {"rbloom": "rbloom", "fastbloom-rs": "fastbloom_rs", "pybloomfiltermmap3": "pybloomfilter"},
)
