"""Coverage-guided fuzzing of what reads hostile bytes (atheris, which is libFuzzer for Python).

    python tests/fuzz/fuzzing.py release_files --runs 1000000

A target is a module of this folder with ``MODULES`` (what to instrument), ``seeds()`` (inputs to start from) and
``one_input(data)``, which raises for anything but the errors that bad input may cause. A run fails on such an exception, on an
input that takes more than 10 s, and when memory grows by more than 256 MiB over what the imports take. ``make fuzz`` runs all.
"""

from __future__ import annotations

import argparse
import importlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = tuple(sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("fuzzing", "test_fuzz_targets")))
SECONDS_EACH = 10
GROWTH_MIB = 256
INPUTS_EACH = 15_000
"""For one process; the next goes on with its corpus. The fuzzer itself grows, by up to 7 KiB an input where many are new to it;
the service does not: 40,000 such calls without the fuzzer end where they began."""


def _fuzz(target: str, runs: int, seconds: int, folder: Path) -> None:
    """Fuzz in this process; it ends with libFuzzer's exit code."""
    import atheris

    sys.path.insert(0, str(HERE))
    sys.path.insert(0, str(HERE.parent))
    with atheris.instrument_imports(include=["veilset", "veilset_server"]):
        module = importlib.import_module(target)
        for name in module.MODULES:
            importlib.import_module(name)
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(module.seeds()):
        module.one_input(seed)
        (corpus / f"seed-{number}").write_bytes(seed)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    atheris.Setup(
        [
            target,
            f"-runs={runs}",
            f"-max_total_time={seconds}",
            f"-timeout={SECONDS_EACH}",
            f"-rss_limit_mb={base + GROWTH_MIB}",
            "-max_len=65536",
            f"-artifact_prefix={folder}/",
            "-print_final_stats=1",
            "-verbosity=0",
            str(corpus),
        ],
        module.one_input,
    )
    atheris.Fuzz()


def main() -> None:
    """Each target in a process of its own; prints one line each, and what broke a target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--runs", type=int, default=300_000, help="inputs for each target (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=600, help="at most, for each target (default: %(default)s)")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if arguments.in_process:
        _fuzz(arguments.targets[0], arguments.runs, arguments.seconds, Path(arguments.in_process))
        return
    outcomes = [_child(target, arguments.runs, arguments.seconds) for target in arguments.targets or TARGETS]
    print(f"{sum(tried for tried, _ in outcomes):>10} inputs in all", flush=True)
    sys.exit(0 if all(well for _, well in outcomes) else 1)


def _child(target: str, runs: int, seconds: int) -> tuple[int, bool]:
    """Returns how many inputs were tried and whether all went well."""
    started, tried, peak, well = time.monotonic(), 0, 0, True
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, __file__, target, "--in-process", folder]
        while well and tried < runs and (left := seconds - (time.monotonic() - started)) >= 1:
            limits = ["--runs", str(min(INPUTS_EACH, runs - tried)), "--seconds", str(int(left))]
            done = subprocess.run([*own, *limits], capture_output=True, text=True)
            stats = dict(re.findall(r"^stat::(\w+):\s+(\d+)$", done.stderr, re.MULTILINE))
            now = int(stats.get("number_of_executed_units", 0))
            well = done.returncode == 0 and now > 0
            tried, peak = tried + now, max(peak, int(stats.get("peak_rss_mb", 0)))
        print(
            f"{tried:>10} inputs  {time.monotonic() - started:>6.0f} s  peak {peak:>4} MiB  "
            f"{target}: {'no crash, no hang' if well else 'FAILED'}",
            flush=True,
        )
        if not well:
            print("".join(line for line in done.stderr.splitlines(True) if not line.startswith("INFO:"))[-6000:])
            print(done.stdout[-6000:])
            for broken in Path(folder).glob("*-*"):
                if broken.is_file():
                    print(f"input {broken.name}: {broken.read_bytes()[:2000].hex()}")
        return tried, well


if __name__ == "__main__":
    main()
