"""``make bench``: measure every family of rows and print one table.

Run as ``python -m benchmarks.runner [--rows PREFIX …] [--quick] [--repeats N] [--json FILE]`` with ``tests`` on PYTHONPATH.
Missing a target is a line in the table and no failure; the exit code is 1 only where a row that could be measured failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.machine import describe_machine, versions
from benchmarks.rows import Family, Measured, Missing, MissingSome, Run
from benchmarks.table import Line, as_json, show

FAMILIES = (
    "ingesting.FAMILY", "adding.FAMILY", "filtering.FAMILY", "perturbing.FAMILY", "asking.FAMILY", "instead.FAMILY",
    "solving.FAMILY", "overlapping.FAMILY", "delivering.FAMILY", "reading.FAMILY", "startup.FAMILY", "remembering.FAMILY",
    "many_sets.FAMILY", "growing.GROWTH", "growing.PRODUCERS",
)  # fmt: skip
QUICK = Run(repeats=1, divisor=200)
_OURS = ("veilset", "numpy", "numba", "grpcio", "protobuf", "mmh3", "pyarrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure veilset against its peers, in one run.")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="PREFIX", help="only rows whose key starts so")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that everything runs, measures nothing")
    parser.add_argument("--repeats", type=int, default=Run().repeats, help="of each row; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same to a file; - is standard output")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    machine = describe_machine()
    run = QUICK if chosen.quick else Run(repeats=chosen.repeats)
    families = [_family(name) for name in FAMILIES]
    lines = [line for family in families for line in _lines(family, run, tuple(chosen.rows))]
    machine["load_average_after"] = round(os.getloadavg()[0], 2)
    packages = versions(dict.fromkeys([*_OURS, *(package for family in families for package in family.packages)]))
    if chosen.json is not None:
        text = json.dumps(as_json(lines, machine, packages), indent=2, ensure_ascii=False)
        if str(chosen.json) == "-":
            print(text)
        else:
            chosen.json.write_text(text + "\n")
    if chosen.json is None or str(chosen.json) != "-":
        show(lines, machine, packages)
    return 1 if any(line.problem.startswith("failed") for line in lines) else 0


def _family(name: str) -> Family:
    module, _, attribute = name.partition(".")
    found = getattr(import_module(f"benchmarks.{module}"), attribute)
    assert isinstance(found, Family)
    return found


def _lines(family: Family, run: Run, prefixes: tuple[str, ...]) -> list[Line]:
    """The family's rows that are asked for, measured. A family is measured as a whole."""
    rows = [row for row in family.rows if row.key.startswith(prefixes)]
    if not rows:
        return []
    print(f"measuring {family.name} …", file=sys.stderr, flush=True)
    found, problem = _measure(family, run)
    return [Line(row, found.get(row.key), "" if row.key in found else problem) for row in rows]


def _measure(family: Family, run: Run) -> tuple[Measured, str]:
    absent = [package for package, module in family.packages.items() if not _importable(module)]
    reason = f"not installed: {', '.join(absent)}" if absent else ""
    try:
        return family.measure(run), reason
    except MissingSome as missing:
        return missing.found, str(missing)
    except (Missing, ImportError) as missing:
        return {}, reason or str(missing)
    except Exception as error:  # noqa: BLE001 - one family's fault must not take the others' figures along
        traceback.print_exc()
        return {}, f"failed: {type(error).__name__}: {error}"


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    sys.exit(main())
