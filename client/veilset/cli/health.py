"""``veilset health``."""

from __future__ import annotations

import click

from veilset.cli import options
from veilset.cli.output import emit
from veilset.cli.server import Server


@click.command("health", short_help="Ask whether the service is ready.")
@click.option("--timeout-seconds", type=float, default=5.0, show_default=True, help="How long to wait for an answer.")
@options.server
@options.as_json
@click.pass_context
def health(context: click.Context, timeout_seconds: float, server: Server, as_json: bool) -> None:
    """Ask the service whether it is ready, for container health checks: exit code 0 if it is, 1 if not or out of reach."""
    from veilset._service.channel import is_serving

    serving = is_serving(server.endpoint(), timeout_seconds)
    status = "serving" if serving else "not serving"
    emit({"server": server.target, "status": status}, as_json, status)
    if not serving:
        context.exit(1)
