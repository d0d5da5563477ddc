"""``veilset publish``, ``releases``, ``fetch`` and ``reconcile``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from veilset._report.facts import describe_header
from veilset._service.records import Release
from veilset.cli import options
from veilset.cli.options import Server
from veilset.cli.output import EXIT_FAILED, EXIT_PENDING, complain, emit, lines
from veilset.core.privacy.budget import amount_text
from veilset.core.privacy.statement import make_statement
from veilset.errors import InvalidInput


@click.command("publish", short_help="Publish a noisy release.")
@options.set_name
@click.option(
    "--request-id",
    help="Repeat a publish safely: the same id never charges twice. Default: a new one, printed if the publish fails.",
)
@click.option("--no-wait", is_flag=True, help="Return once the release is charged and on disk.")
@click.option(
    "--although-pending",
    is_flag=True,
    help="Charge even if an earlier release of SET is charged and Redis does not accept it.",
)
@click.option(
    "--count-epsilon", type=float, help="ε to spend on a noisy count, on top of the release (add-remove only)."
)
@click.option(
    "--count-delta",
    type=float,
    default=0.0,
    help="δ to spend on the count; a little makes it better. Without it about 1e-17 is charged for its 64 random bits.",
)
@click.option("--epsilon", type=float, default=0.0, help="ε of this release; default: the set's.")
@options.encoding
@click.option(
    "--increment",
    is_flag=True,
    help="Publish only what no release since the last base release holds; this costs nothing. Removed elements stay in the "
    "answers until the next base release, unless the set pays for removals.",
)
@click.option("--increments", type=int, help="How many increments may follow this base release; default: the set's.")
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="How long to wait for the answer; a vector of gigabytes takes minutes.",
)
@options.server
@options.as_json
def publish(
    set_name: str, no_wait: bool, encoding: str | None, server: Server, as_json: bool, **parameters: Any
) -> int:
    """Draw fresh noise over all finished uploads of SET, charge its budget, and publish to Redis.

    Exit code 3 if the release is charged and Redis does not accept it: it stays pending and is delivered once Redis does; the
    same command with --request-id shows its state. Exit code 1 if it is lost: charged, but its file was damaged before Redis had
    it.
    """
    encoding, dimensions = options.take_dimensions(encoding, parameters)
    with server.connect() as service:
        release = service.publish(set_name, wait=not no_wait, encoding=encoding or "", **(parameters | dimensions))
    shown = describe(release)
    emit(shown, as_json, f"{release.set_name}/{release.sequence} {release.state}\n{make_statement(release.header)}")
    if release.state == "lost":
        complain(
            f"{release.set_name}/{release.sequence} is lost, as its file was damaged before Redis had it; "
            + (
                "what it held waits for the next base release"
                if release.header.earlier
                else "it stays charged, and another request id publishes anew"
            )
        )
        return EXIT_FAILED
    if release.state == "pending" and not no_wait:
        cause = release.delayed_by or "Redis has not accepted it yet"
        complain(
            f"{release.set_name}/{release.sequence}: charged and pending ({cause}); it is delivered once Redis accepts it, and "
            f"publish --request-id {release.request_id} shows its state"
        )
        return EXIT_PENDING
    return 0


@click.command("releases", short_help="List the releases of a set.")
@options.set_name
@options.server
@options.as_json
def releases(set_name: str, server: Server, as_json: bool) -> None:
    """List the releases of SET, newest first; with --json one object per line. An increment, which is free, shows its number."""
    with server.connect() as service:
        for release in service.list_releases(set_name):
            shown, header = describe(release), release.header
            what = f"ε={amount_text(make_statement(header).epsilon)}"
            if not header.is_base:
                what = f"increment {len(header.earlier)} of {header.planned_increments} to release {header.generation}"
            text = f"{release.sequence}\t{release.state}\t{shown['created_at']}\t{what}"
            click.echo(json.dumps(shown) if as_json else text)


@click.command("fetch", short_help="Save a checked release to a file.")
@options.set_name
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write.")
@click.option("--sequence", type=int, default=0, help="Which release; default: the newest.")
@options.redis
@options.redis_file
@options.public_key
@options.as_json
def fetch(
    set_name: str,
    output: Path,
    sequence: int,
    redis: str | None,
    redis_file: Path | None,
    public_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Fetch a release of SET from Redis, check it, and save it for reading without Redis (query --release)."""
    from veilset._reader.reader import open_view

    redis = options.read_redis(redis, redis_file)
    if redis is None:
        raise InvalidInput("redis", "redis is needed: give --redis URL or set VEILSET_REDIS")
    view = open_view(redis, set_name, sequence=sequence, public_keys=public_keys)
    view.save(output)
    shown = {"set": set_name, "sequence": view.header.sequence, "file": str(output), "bytes": output.stat().st_size}
    emit(shown, as_json, lines(shown))


@click.command("reconcile", short_help="Restore what Redis lost.")
@click.argument("set_name", metavar="[SET]", default="")
@options.server
@options.as_json
def reconcile(set_name: str, server: Server, as_json: bool) -> int:
    """Compare Redis with the ledger, content included, and write what is missing or changed again, byte for byte.

    Reads every kept release back from Redis; the service itself checks a few chunks at a time. Charges nothing. Exit
    code 1 if a release cannot be restored, because its file in the state folder is damaged too.
    """
    with server.connect(timeout_seconds=600) as service:
        done = service.reconcile(set_name)
    unrestorable = [{"set": name, "sequence": sequence} for name, sequence in done.unrestorable]
    shown = {"checked": done.checked, "restored_keys": done.restored_keys, "unrestorable": unrestorable}
    emit(shown, as_json, f"{done.checked} releases checked, {done.restored_keys} keys restored")
    for name, sequence in done.unrestorable:
        complain(f"{name}/{sequence} cannot be restored, as its file is damaged too; publish {name} anew")
    return EXIT_FAILED if unrestorable else 0


def describe(release: Release) -> dict[str, object]:
    """The state and the header of a release, flat; name → value."""
    delayed = {"delayed_by": release.delayed_by} if release.delayed_by else {}
    return {"state": release.state, "request_id": release.request_id} | delayed | describe_header(release.header)
