"""``veilset demo``: the main job with real processes on a real list."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import redis

from veilset._input.files import FileForm, read_files
from veilset._reader import redis_keys
from veilset._service.service import Service
from veilset.cli import options
from veilset.cli.output import emit
from veilset.core.encodings import ENCODINGS
from veilset.core.estimates.intervals import binomial_interval
from veilset.errors import InvalidInput, VeilsetError, must_be

SET = "demo"
"""The sets are demo-bloom and demo-linear: this, a hyphen and the encoding."""
EPSILON = 5.0
HELD_OUT_EVERY = 10
MAX_ASKED = 200_000
CONFIDENCE = 0.999


@dataclass(frozen=True, slots=True)
class Lists:
    """A real list, cut in two: what is added, and what is held out to be asked about."""

    origin: str
    members: list[bytes]
    non_members: list[bytes]


@click.command("demo", short_help="Show the whole job on a real list.")
@click.option("--file", "path", help="A list of yours, one element a line. Default: disposable e-mail domains.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-state"),
    show_default=True,
    help="State folder of the demo's service; emptied first.",
)
@options.as_json
def demo(path: str | None, state: Path, as_json: bool) -> None:
    """Start a service with a Valkey of its own, stream a list, publish, and read it back in another process.

    Nine of ten entries are streamed; every tenth is held out. Shows predicted and measured error rates of every
    encoding side by side.
    """
    lists = read_lists(path)
    _empty(state)
    files = {name: state.with_name(f"{state.name}-{name}.txt") for name in ("members", "non-members")}
    _write(files["members"], lists.members[:MAX_ASKED])
    _write(files["non-members"], lists.non_members[:MAX_ASKED])
    with running_service(state) as ready, Service(ready["address"]) as service:
        _say(f"service on {ready['address']}, Valkey at {ready['redis']}, state in {state}")
        _say(f"streaming {len(lists.members)} entries: {lists.origin}")
        result: dict[str, Any] = {
            "origin": lists.origin,
            "streamed": len(lists.members),
            "held_out": len(lists.non_members),
            "encodings": {name: _run(service, name, lists, files, ready) for name in ENCODINGS},
            "redis_url": ready["redis"],
            "example": shlex.quote(lists.members[0].decode("utf-8", "replace")),
            "redis": _redis_keys(ready["redis"]),
        }
    emit(result, as_json, _report(result, state, files))


def _run(
    service: Service, encoding: str, lists: Lists, files: dict[str, Path], ready: dict[str, str]
) -> dict[str, Any]:
    """One set in this encoding, from its creation to the answers."""
    name = f"{SET}-{encoding}"
    service.create_set(
        name,
        size=round_size(len(lists.members)),
        epsilon=EPSILON,
        adjacency="add-remove",
        encoding=encoding,
        budget_epsilon=2 * EPSILON,
    )
    service.add(name, lists.members)
    release = service.publish(name)
    _say(f"published {name}/{release.sequence}; asking from another process")
    asked = {
        "true_positive_rate": _ask(name, files["members"], ready),
        "false_positive_rate": _ask(name, files["non-members"], ready),
    }
    return {
        "set": name,
        "dimensions": str(release.header.encoding),
        "bytes": release.header.encoding.vector_bytes,
        "bits_per_element": 8 * release.header.encoding.vector_bytes / len(lists.members),
        "rates": {rate: _compare(rate, answer) for rate, answer in asked.items()},
        "budget": _budget(service, name),
    }


def round_size(count: int) -> int:
    """``count`` rounded up to two digits: the declared size is public, as the vector's length follows from it."""
    unit: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit


def _say(progress: str) -> None:
    click.echo(progress, err=True)


def read_lists(path: str | None) -> Lists:
    """The list of ``path``, or the disposable e-mail domains of the MailChecker package, without duplicates."""
    if path is not None:
        found = list(dict.fromkeys(read_files([path], FileForm("lines"))))
        origin = path
    else:
        try:
            from MailChecker import MailChecker
        except ImportError:
            raise InvalidInput(
                "file", "file is needed, since mailchecker is not installed; give a list, or pip install mailchecker"
            ) from None
        found = sorted(domain.encode() for domain in MailChecker.blacklist)
        origin = "disposable e-mail domains of the package mailchecker (MIT licence)"
    if len(found) < 2 * HELD_OUT_EVERY:
        raise must_be("file", f"a list of at least {2 * HELD_OUT_EVERY} different entries", len(found))
    held_out = found[::HELD_OUT_EVERY]
    del found[::HELD_OUT_EVERY]
    return Lists(origin, found, held_out)


def _empty(state: Path) -> None:
    """Remove an earlier demo's state, and nothing else."""
    state.parent.mkdir(parents=True, exist_ok=True)
    if state.exists():
        if any(state.iterdir()) and not (state / "ledger.db").exists():
            raise must_be("state", "a new or empty folder, or one of an earlier demo", str(state))
        shutil.rmtree(state)
    state.with_name(state.name + ".anchor").unlink(missing_ok=True)  # it remembers the state that is gone


def _write(path: Path, entries: list[bytes]) -> None:
    """Write entries to a file that only this user can read: they may be a real list."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(b"\n".join(entries) + b"\n")


@contextmanager
def running_service(state: Path) -> Iterator[dict[str, str]]:
    """A service process with an embedded Valkey; yields what it prints when it is ready, and stops it by SIGTERM."""
    log_path = state.with_name(state.name + ".log")
    command = [sys.executable, "-m", "veilset", "serve", "--state", str(state), "--port", "0", "--json"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 - our own command
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise VeilsetError(f"service: did not start; see {log_path}: {log_path.read_text()[-500:]}")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()


def _ask(name: str, file: Path, ready: dict[str, str]) -> dict[str, float]:
    """Ask about every line of ``file`` in a process of its own, which sees Redis and nothing else."""
    arguments = ["query", name, "--from", str(file), "--redis", ready["redis"], "--public-key", ready["public_key"]]
    command = [sys.executable, "-m", "veilset", *arguments, "--summary", "--json"]
    done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _compare(rate: str, answer: dict[str, float]) -> dict[str, object]:
    """Predicted and measured, and where a measurement of this size lies 99.9% of the time."""
    asked, predicted = int(answer["asked"]), answer[rate]
    low, high = binomial_interval(asked, predicted, CONFIDENCE)
    measured = int(answer["members"])
    return {
        "asked": asked,
        "predicted": predicted,
        "measured": measured / asked,
        "interval": [low / asked, high / asked],
        "inside": low <= measured <= high,
    }


def _redis_keys(url: str) -> dict[str, int]:
    """Every key of the demo's Valkey and the length of its value."""
    client = redis.Redis.from_url(url)
    names = sorted(client.scan_iter(match=f"{redis_keys.PREFIX}:*"))
    return {name.decode(): int(client.strlen(name)) for name in names}


def _budget(service: Service, name: str) -> dict[str, object]:
    found = service.budget(name)
    return {
        "epsilon_spent": found.epsilon_spent,
        "epsilon_total": found.epsilon_total,
    }


def _report(result: dict[str, Any], state: Path, files: dict[str, Path]) -> str:
    names = {"true_positive_rate": "members answered yes (TPR)", "false_positive_rate": "others answered yes (FPR)"}
    parts = [f"{result['streamed']} entries streamed, {result['held_out']} held out"]
    for encoding, found in result["encodings"].items():
        budget = found["budget"]
        parts += [
            "",
            f"{encoding}: {found['dimensions']}; {found['bytes']:,} bytes, {found['bits_per_element']:.1f} bits an entry",
            f"{'':<30}{'asked':>9}{'predicted':>11}{'measured':>11}   99.9% of such runs measure",
            *(
                f"{names[rate]:<30}{row['asked']:>9}{row['predicted']:>11.4%}{row['measured']:>11.4%}"
                f"   {row['interval'][0]:.4%} to {row['interval'][1]:.4%}   {'inside' if row['inside'] else 'OUTSIDE'}"
                for rate, row in found["rates"].items()
            ),
            f"charged: ε {budget['epsilon_spent']:g} of {budget['epsilon_total']:g}; unit: one entry, relation: add-remove",
        ]
    keys = [f"  {name:<36}{length:>10}" for name, length in result["redis"].items()]
    return "\n".join(["", *parts, "", "Redis holds (bytes):", *keys, "", "Try it:", *_next_steps(result, state, files)])


def _next_steps(result: dict[str, Any], state: Path, files: dict[str, Path]) -> Sequence[str]:
    url = result["redis_url"]
    program = str(Path(sys.executable).with_name("veilset"))
    name = f"{SET}-linear"
    return [
        f"  {program} serve --state {state} &          # the same service again",
        f"  {program} query {name} {result['example']} --redis {url}  # ask it yourself",
        f"  {program} query {name} --from {files['non-members']} --redis {url} --summary",
        f"  {program} budget {name}                     # what is spent and left",
        f"  {program} publish {name}                    # a second release: fresh noise, charged again",
        "  make demo DEMO_FILE=your-list.txt          # a list of yours",
    ]
