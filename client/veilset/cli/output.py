"""Results as text or JSON, and progress on standard error where that is a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

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


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; None is one that was closed before the program started."""
    return stream is not None and stream.isatty()


@contextmanager
def progress(description: str, total: int | None = None, *, prints: bool = False) -> Iterator[Callable[[int], None]]:
    """A callback that shows how many are done, as a bar on standard error if that is a terminal.

    prints: the command writes results meanwhile, so there is no bar if they too go to a terminal.
    """
    if not is_terminal(sys.stderr) or (prints and is_terminal(sys.stdout)):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Rich would send what is printed meanwhile to standard error, results included.
    console = Console(stderr=True)
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)
