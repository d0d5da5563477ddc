"""Results as text or JSON, messages as one line on standard error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

EXIT_FAILED = 1
EXIT_PENDING = 3


def emit(result: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Print a result: one JSON object, or ``text``."""
    click.echo(json.dumps(result) if as_json else text)


def escape(text: str) -> str:
    """Text on one line: control and unprintable characters as in a Python string, backslashes doubled."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def complain(message: str) -> None:
    """Write a message as one line to standard error."""
    plain = " ".join(message.split())
    click.echo("veilset: " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in plain), err=True)


def lines(pairs: Mapping[str, object]) -> str:
    """One line for each name and its value, aligned."""
    width = max(map(len, pairs), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs.items())
