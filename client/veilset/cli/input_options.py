"""Options of the commands that read elements from files, and the report of what was skipped."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from veilset._input.csv import CsvForm
from veilset._input.files import FORMATS, FileForm
from veilset._input.text import Tally


def _parse_delimiter(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    found = "\t" if value == "\\t" else value
    if found is not None and (len(found) != 1 or not found.isascii() or found in '\r\n"\0'):
        raise click.BadParameter("must be one ASCII character, such as ; or \\t for a tab", context, parameter)
    return found


_OPTIONS = (
    click.option(
        "--format",
        "file_format",
        type=click.Choice(FORMATS),
        help="Default: by the first bytes and the suffix, csv with --column, else lines.",
    ),
    click.option(
        "--column",
        help="Column of a CSV, Parquet or Arrow file: its name or, in a CSV file without a header, its number from 1.",
    ),
    click.option(
        "--header/--no-header",
        "header",
        default=None,
        help="Whether a CSV file's first row is a header; default: yes where --column is a name, no where it is a number.",
    ),
    click.option(
        "--delimiter",
        callback=_parse_delimiter,
        metavar="CHARACTER",
        help="What separates the cells of a CSV file; default: a comma, or a tab in a .tsv file.",
    ),
    click.option("--no-quotes", "no_quotes", is_flag=True, help="Quotes in a CSV file have no meaning."),
    click.option("--encoding", help="Encoding of text, such as utf-16 or latin-1; default: UTF-8."),
)


def file_form(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --format, --column, --header, --delimiter, --no-quotes and --encoding; the command gets them as ``form``."""

    @wraps(command)
    def with_form(
        file_format: str | None,
        column: str | None,
        header: bool | None,
        delimiter: str | None,
        no_quotes: bool,
        encoding: str | None,
        **rest: Any,
    ) -> Any:
        csv = CsvForm(header, delimiter, quotes=not no_quotes)
        return command(form=FileForm(file_format, column, csv, encoding), **rest)

    for option in reversed(_OPTIONS):
        with_form = option(with_form)
    return with_form


skip_invalid = click.option(
    "--skip-invalid", is_flag=True, help="Leave out what is no element under the set's normalization, and say how many."
)


def report(tally: Tally, invalid: int = 0) -> None:
    """Write to standard error what was skipped, and what may have to be."""
    if tally.empty:
        what = "empty line, row or value" if tally.empty == 1 else "empty lines, rows or values"
        click.echo(f"veilset: {tally.empty} {what} skipped", err=True)
    if invalid:
        click.echo(f"veilset: {invalid} invalid element{'' if invalid == 1 else 's'} skipped", err=True)
    if tally.uuids:
        click.echo(
            f"veilset: {tally.uuids} UUIDs taken as text, such as 123e4567-e89b-12d3-a456-426614174000", err=True
        )
    if tally.null_like:
        what = "elements look like missing values (such as NULL, \\N or nan) and were taken as text"
        click.echo(f"veilset: warning: {tally.null_like} {what}", err=True)
