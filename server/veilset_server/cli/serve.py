"""``veilset serve``: found by the client's command line through the entry point group ``veilset.commands``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from veilset_server.cli.access_options import access_options
from veilset_server.cli.monitoring_options import monitoring_options
from veilset_server.settings import Settings

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the log is JSON lines; what gRPC says of a fault comes as an error


@click.command("serve", short_help="Run the service.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("veilset-state"),
    show_default=True,
    help="State folder: ledger, sets, releases, signing key.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; without TLS only a loopback one."
)
@click.option("--port", type=int, default=50051, show_default=True, help="gRPC port; 0 takes a free one.")
@click.option(
    "--redis",
    metavar="URL",
    help="Redis or Valkey: redis://, rediss://, unix://, redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/NAME. Default: "
    "an embedded Valkey.",
)
@click.option(
    "--redis-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that holds the Redis URL, to keep a password off the command line; read at the start only.",
)
@click.option(
    "--anchor",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that remembers charges, outside the state folder, in a folder that exists, best on another volume; default: "
    "STATE.anchor.",
)
@click.option(
    "--embedded-port", type=int, default=0, help="Port of the embedded Valkey; default: the one it had, or a free one."
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificate chain (PEM) for TLS; read anew on SIGHUP, or once it is another file.",
)
@click.option("--tls-key", type=click.Path(path_type=Path, dir_okay=False), help="Its private key (PEM).")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Authority (PEM) of clients' certificates (mTLS): every client then has to show one that it signed.",
)
@click.option("--insecure", is_flag=True, help="Allow plain text on an address that is not loopback.")
@click.option(
    "--replicas",
    type=int,
    default=0,
    show_default=True,
    help="Redis replicas that must hold a release before it becomes visible.",
)
@click.option("--keep-releases", type=int, default=2, show_default=True, help="Releases of a set that stay in Redis.")
@click.option(
    "--grace-seconds",
    type=int,
    default=600,
    show_default=True,
    help="How long an older release stays for readers in mid-download.",
)
@click.option(
    "--reconcile-seconds",
    type=float,
    default=10.0,
    show_default=True,
    help="How often Redis is compared with the ledger.",
)
@click.option(
    "--idle-seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="Silent upload streams end after this; they can be resumed.",
)
@click.option(
    "--drain-seconds", type=float, default=10.0, show_default=True, help="How long SIGTERM lets calls finish."
)
@click.option(
    "--shutdown-delay-seconds",
    type=float,
    default=0.0,
    show_default=True,
    help="How long SIGTERM goes on serving while health says no, for a load balancer to notice.",
)
@click.option(
    "--publish-wait-seconds",
    type=float,
    default=30.0,
    show_default=True,
    help="How long a publish waits for Redis to show its charged release before it answers PENDING; with Redis down beforehand "
    "it fails at once and charges nothing.",
)
@click.option(
    "--redis-timeout-seconds",
    type=float,
    default=10.0,
    show_default=True,
    help="How long a command may keep Redis before it counts as unavailable.",
)
@click.option(
    "--abandoned-upload-hours",
    type=float,
    default=24.0,
    show_default=True,
    help="Unfinished uploads that nobody continues are dropped after this.",
)
@click.option("--max-bits", type=int, default=1 << 35, show_default=True, help="Longest vector of a set, in bits.")
@click.option("--max-sets", type=int, default=10_000, show_default=True, help="Number of sets.")
@click.option(
    "--workers",
    type=int,
    default=16,
    show_default=True,
    help="Calls at work at a time, and as many uploads; of one caller half.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@access_options
@monitoring_options
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as JSON.")
def serve(as_json: bool, redis: str | None, redis_file: Path | None, **options: object) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Prints one line on standard output when it is ready: the gRPC address, the Redis URL for readers on this machine,
    and the public key that readers pin. Logs go to standard error as JSON lines.
    """
    from veilset_server.signals import starting

    with starting():
        _serve(options, redis, redis_file, as_json=as_json)


def _serve(options: dict[str, object], redis: str | None, redis_file: Path | None, *, as_json: bool) -> None:
    from veilset.cli.options import read_redis
    from veilset_server.app import Ready
    from veilset_server.app import serve as run
    from veilset_server.metrics.logs import configure_logs
    from veilset_server.process import prepare_process, refuse_core_dumps, return_freed_memory

    options["redis"] = read_redis(redis, redis_file)
    settings = Settings(**options)  # type: ignore[arg-type]
    configure_logs(settings.log_level)
    return_freed_memory()
    prepare_process()
    if not settings.allow_core_dumps:
        refuse_core_dumps()

    def announce(ready: Ready) -> None:
        own = settings.redis is None
        if as_json:
            shown = {"address": ready.address, "redis": ready.redis if own else None, "public_key": ready.public_key}
            shown |= {"metrics": ready.metrics} if ready.metrics is not None else {}
            click.echo(json.dumps(shown))
        else:
            readers = ready.redis if own else "the Redis URL you gave"
            click.echo(f"veilset serves on {ready.address}; readers: {readers}; key to pin: {ready.public_key}")

    run(settings, announce)
