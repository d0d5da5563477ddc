"""The commands of the server package, serve, keys and token, and what they share: the state folder's option, and durations."""

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

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Seconds in a text such as 90s, 30m, 12h or 30d; 0 needs no unit."""
    number, unit = (value, "s") if value == "0" else (value[:-1], value[-1:])
    if unit not in _SECONDS or not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise click.BadParameter("must be a time such as 90s, 30m, 12h or 30d", context, parameter)
    return int(number) * _SECONDS[unit]
