"""Options of ``veilset serve`` about who is let in, and how much of the service each may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from veilset_server.limits import RANGES, Limits

_HELP = {
    "max_calls": "Calls open at a time, streams and others.",
    "max_calls_per_principal": "The same of one principal, or of one address without authentication.",
    "requests_per_second": "Calls begun a second, on the long run.",
    "requests_per_second_per_principal": "The same of one principal.",
    "max_open_uploads": "Uploads begun and not finished.",
    "max_open_uploads_per_principal": "The same of one principal.",
    "max_sets_per_principal": "Sets that one principal may have created.",
    "max_message_bytes": "Longest message of a call, in bytes.",
    "failed_attempts_per_minute": "Calls without valid credentials that one address may make.",
}


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --auth, --identities and a limit's option each; the command gets the limits as ``limits``."""

    @wraps(command)
    def with_limits(**options: Any) -> Any:
        limits = Limits(**{name: options.pop(name) for name in _HELP})
        return command(limits=limits, **options)

    decorated: Callable[..., Any] = with_limits
    for field in reversed(fields(Limits)):
        low, high = RANGES[field.name]
        decorated = click.option(
            f"--{field.name.replace('_', '-')}",
            type=int,
            default=field.default,
            show_default=True,
            help=f"{_HELP[field.name]} In [{low:g}, {high:g}].",
        )(decorated)
    decorated = click.option(
        "--identities",
        type=click.Path(path_type=Path, dir_okay=False),
        help="TOML file that gives names in client certificates their roles and sets; with --client-ca.",
    )(decorated)
    return click.option(
        "--auth",
        type=click.Choice(["auto", "token", "none"]),
        default="auto",
        show_default=True,
        help="Whether callers show credentials; auto: once there is a token (veilset token) or --identities.",
    )(decorated)
