"""``veilset publish``, ``releases``, ``fetch`` and ``reconcile``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.core.budget import NANO
from veilset.core.release import ReleaseHeader
from veilset.core.statement import make_statement
from veilset.errors import InvalidInput
from veilset.service import Release, connect


@click.command("publish", short_help="Publish a noisy release.")
@options.set_name
@click.option("--request-id", help="Repeat a publish safely: the same id never charges twice.")
@click.option("--no-wait", is_flag=True, help="Return once it is charged and on disk.")
@click.option("--count-epsilon", type=float, help="ε to spend beside that on a noisy count (add-remove only).")
@click.option(
    "--count-delta",
    type=float,
    default=0.0,
    help="δ to spend on it; a little makes it better. Without any, about 1e-17 is charged for its 64 random bits.",
)
@options.server
@options.as_json
def publish(
    set_name: str,
    request_id: str | None,
    no_wait: bool,
    count_epsilon: float | None,
    count_delta: float,
    server: str,
    as_json: bool,
) -> None:
    """Draw fresh noise over all finished uploads of SET, charge its budget, and publish to Redis."""
    with connect(server) as service:
        release = service.publish(
            set_name,
            request_id=request_id,
            wait=not no_wait,
            count_epsilon=count_epsilon,
            count_delta=count_delta,
        )
    shown = describe(release)
    emit(shown, as_json, f"{release.set_name}/{release.sequence} {release.state}\n{make_statement(release.header)}")


@click.command("releases", short_help="List the releases of a set.")
@options.set_name
@options.server
@options.as_json
def releases(set_name: str, server: str, as_json: bool) -> None:
    """List the releases of SET, newest first; with --json one object a line."""
    with connect(server) as service:
        for release in service.list_releases(set_name):
            shown = describe(release)
            text = f"{release.sequence}\t{release.state}\t{shown['created_at']}\tε={make_statement(release.header).epsilon:g}"
            click.echo(json.dumps(shown) if as_json else text)


@click.command("fetch", short_help="Save a checked release to a file.")
@options.set_name
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--sequence", type=int, default=0, help="Which release; default: the newest.")
@options.redis
@options.public_key
@options.as_json
def fetch(
    set_name: str, output: Path, sequence: int, redis: str | None, public_keys: tuple[str, ...], as_json: bool
) -> None:
    """Fetch a release of SET from Redis, check it, and save it for reading without Redis (query --release)."""
    from veilset.reader import open_view

    if redis is None:
        raise InvalidInput("redis", "given, by --redis URL or VEILSET_REDIS")
    view = open_view(redis, set_name, sequence=sequence, public_keys=public_keys)
    view.save(output)
    shown = {"set": set_name, "sequence": view.header.sequence, "file": str(output), "bytes": output.stat().st_size}
    emit(shown, as_json, lines(shown))


@click.command("reconcile", short_help="Restore what Redis lost.")
@click.argument("set_name", metavar="[SET]", default="")
@options.server
@options.as_json
def reconcile(set_name: str, server: str, as_json: bool) -> None:
    """Compare Redis with the ledger and write again what is missing, byte for byte. Charges nothing."""
    with connect(server, timeout_seconds=600) as service:
        checked, restored = service.reconcile(set_name)
    shown = {"checked": checked, "restored_keys": restored}
    emit(shown, as_json, f"{checked} releases checked, {restored} keys restored")


def describe(release: Release) -> dict[str, object]:
    """A release's header, flat."""
    return {"state": release.state, "request_id": release.request_id} | describe_header(release.header)


def describe_header(header: ReleaseHeader) -> dict[str, object]:
    """What a release says of itself, flat."""
    return {
        "set": header.set_name,
        "sequence": header.sequence,
        "created_at": datetime.fromtimestamp(header.created_at_us / 1e6, UTC).isoformat(timespec="seconds"),
        "bits": header.filter.bits,
        "hashes": header.filter.hashes,
        "scheme": str(header.filter.scheme),
        "seed": header.filter.seed,
        "normalization": str(header.normalization),
        "epsilon": header.privacy.epsilon,
        "delta": header.privacy.delta,
        "adjacency": str(header.privacy.adjacency),
        "calibration": str(header.privacy.calibration),
        "elements_per_user": header.privacy.elements_per_user,
        "min_size": header.privacy.min_size,
        "changed_bits": header.changed_bits,
        "epsilon0": header.epsilon0,
        "flip_probability": header.flip_probability,
        "total_epsilon": header.total_nano_epsilon / NANO,
        "total_delta": header.total_delta,
        "count": asdict(header.count) if header.count else None,
        "statement": asdict(make_statement(header)),
    }
