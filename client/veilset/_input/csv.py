"""One column of a CSV file: which one, whether its first row is a header, and what parts its cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, BinaryIO

import click

from veilset.errors import InvalidInput


@dataclass(slots=True)
class Tally:
    """What was met on the way. files: how many were begun; skipped: nulls, empty lines and empty cells; line: of the element
    given last, from 1."""

    files: int = 0
    skipped: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How CSV files are laid out. header: whether the first row is one; None: if the column is a name. delimiter: None: a tab
    in a .tsv file, else a comma."""

    header: bool | None = None
    delimiter: str | None = None

    def check_used(self, file_format: str) -> None:
        """Raise InvalidInput where either is given for a file that is no CSV."""
        for name, value in (("header", self.header), ("delimiter", self.delimiter)):
            if value is not None and file_format != "csv":
                raise InvalidInput(name, f"absent for a file read as {file_format}: it is for CSV")

    def delimiter_of(self, path: str) -> str:
        """What parts the cells of a file."""
        return self.delimiter or ("\t" if path.removesuffix(".gz").lower().endswith(".tsv") else ",")


AS_USUAL = CsvForm()


def _parse_delimiter(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    found = "\t" if value == "\\t" else value
    if found is not None and (len(found) != 1 or found in '\r\n"\0'):
        raise click.BadParameter("must be one character, such as ; or \\t for a tab", context, parameter)
    return found


def csv_form(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --header/--no-header and --delimiter; the command gets them as ``form``."""

    @click.option(
        "--header/--no-header",
        "header",
        default=None,
        help="Whether a CSV file's first row is a header; default: yes where --column is a name, no where it is a number.",
    )
    @click.option(
        "--delimiter",
        callback=_parse_delimiter,
        metavar="CHARACTER",
        help="What parts the cells of a CSV file; default: a comma, or a tab in a .tsv file.",
    )
    @wraps(command)
    def with_form(header: bool | None, delimiter: str | None, **rest: Any) -> Any:
        return command(form=CsvForm(header, delimiter), **rest)

    return with_form


def read_csv(file: BinaryIO, path: str, column: str | None, form: CsvForm, tally: Tally) -> Iterator[str]:
    """The column's cells that are not empty. Raises InvalidInput for a missing column or a broken file."""
    if column is None:
        raise InvalidInput("column", "given for a CSV file: a name from its header, or a number from 1")
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    rows = csv.reader(text, delimiter=form.delimiter_of(path))
    try:
        index = _column_index(column, rows, form.header)
        for row in rows:
            if index >= len(row):
                raise InvalidInput("column", f"in every row; row {rows.line_num} is too short")
            if row[index]:
                tally.line = rows.line_num
                yield row[index]
            else:
                tally.skipped += 1
    except UnicodeDecodeError:
        raise InvalidInput("file", f"UTF-8 text; after line {rows.line_num} it is not") from None
    except csv.Error as error:
        raise InvalidInput("file", f"CSV; line {rows.line_num}: {error}") from None
    finally:
        text.detach()  # whoever opened the file closes it


def _column_index(column: str, rows: Iterator[list[str]], header: bool | None) -> int:
    if not (column.isascii() and column.isdigit()):
        if header is False:
            raise InvalidInput("column", "a number from 1 with --no-header", column)
        return _find_column(next(rows, []), column)
    if int(column) < 1:
        raise InvalidInput("column", "a name from the first row, or a number from 1", column)
    if header:
        next(rows, None)
    return int(column) - 1


def _find_column(header: list[str], column: str) -> int:
    if column not in header:
        raise InvalidInput("column", "a name in the first row, which is not shown: without a header it is data", column)
    return header.index(column)
