"""Options of ``veilset serve`` for those who operate it: metrics, traces, core dumps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--metrics-port", type=int, help="Port for Prometheus (GET /metrics); 0 takes a free one.  [default: off]"
    ),
    click.option(
        "--metrics-host", default="127.0.0.1", show_default=True, help="Address of the metrics' own listener."
    ),
    click.option(
        "--metrics-max-sets",
        type=int,
        default=200,
        show_default=True,
        help="Sets that get metrics of their own: budget, release age and sequence.",
    ),
    click.option(
        "--otlp-endpoint",
        metavar="URL",
        help="OpenTelemetry collector (OTLP over gRPC) for traces: https://host:4317; needs the extra 'tracing'.",
    ),
    click.option(
        "--allow-core-dumps", is_flag=True, help="Let a crash write the process's memory, elements included, to a file."
    ),
)


def monitoring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them, in the order above."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
