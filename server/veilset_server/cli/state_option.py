"""The option of commands that work on the state folder of a service, running or not."""

from __future__ import annotations

from pathlib import Path

import click

state_folder = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="VEILSET_SERVE_STATE",
    default=Path("veilset-state"),
    show_default=True,
    help="State folder of the service; also from VEILSET_SERVE_STATE, as `serve` takes it.",
)
