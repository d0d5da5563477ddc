"""Elements from files: lines, a CSV column, Parquet or Arrow; gzip by its first bytes; ``-`` is standard input."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import click

from veilset.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("lines", "csv", "parquet", "arrow")
_BOM = b"\xef\xbb\xbf"

formats = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="Default: by suffix, csv with --column, else lines."
)
column = click.option("--column", help="Column of a CSV, Parquet or Arrow file: its name, or its number from 1 in CSV.")


def read_elements(path: str, file_format: str | None = None, column: str | None = None) -> Iterator[bytes | str]:
    """Elements of a file one by one, in bounded memory. Empty lines and empty cells are skipped.

    Raises InvalidInput for a file that cannot be read, a missing column or a broken file; no element is repeated.
    """
    chosen = file_format or _guess_format(path, column)
    try:
        if chosen in ("parquet", "arrow"):
            yield from _read_table(path, chosen, column)
            return
        with _open(path) as file:
            yield from _read_lines(file) if chosen == "lines" else _read_csv(file, column, _delimiter(path))
    except OSError as error:
        raise InvalidInput("file", f"readable: {path}: {error.strerror or type(error).__name__}") from None
    except (EOFError, zlib.error):
        raise InvalidInput("file", f"a whole gzip file: {path}") from None


def _guess_format(path: str, column: str | None) -> str:
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    known = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "csv"}
    return known.get(suffix, "csv" if column else "lines")


def _open(path: str) -> BinaryIO:
    if path == "-":
        if sys.stdin.isatty():
            click.echo("veilset: reading elements from the terminal; end with Ctrl-D", err=True)
        return sys.stdin.buffer
    magic = _magic(Path(path))
    if magic == b"PAR1":
        raise InvalidInput("format", "parquet for this file, which is one", "lines")
    return (
        cast(BinaryIO, gzip.open(path, "rb"))
        if magic[:2] == b"\x1f\x8b" or path.endswith(".gz")
        else Path(path).open("rb")
    )


def _magic(path: Path) -> bytes:
    """The first four bytes of a regular file; what is read from a pipe would be gone."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(4)


def _read_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(file):
        stripped = line.removesuffix(b"\n").removesuffix(b"\r")
        element = stripped.removeprefix(_BOM) if number == 0 else stripped
        if element:
            yield element


def _delimiter(path: str) -> str:
    return "\t" if path.removesuffix(".gz").lower().endswith(".tsv") else ","


def _read_csv(file: BinaryIO, column: str | None, delimiter: str) -> Iterator[str]:
    if column is None:
        raise InvalidInput("column", "given for a CSV file: a name from its header, or a number from 1")
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    rows = csv.reader(text, delimiter=delimiter)
    try:
        index = int(column) - 1 if column.isdigit() else _find_column(next(rows, []), column)
        for row in rows:
            if index >= len(row):
                raise InvalidInput("column", f"in every row; row {rows.line_num} is too short")
            if row[index]:
                yield row[index]
    except UnicodeDecodeError:
        raise InvalidInput("file", f"UTF-8 text; after line {rows.line_num} it is not") from None
    except csv.Error as error:
        raise InvalidInput("file", f"CSV; line {rows.line_num}: {error}") from None
    finally:
        text.detach()  # whoever opened the file closes it


def _find_column(header: list[str], column: str) -> int:
    if column not in header:
        raise InvalidInput("column", "a name in the first row, which is not shown: without a header it is data", column)
    return header.index(column)


def _read_table(path: str, file_format: str, column: str | None) -> Iterator[bytes | str]:
    try:
        import pyarrow as arrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput("format", "lines or csv, unless you pip install 'veilset[parquet]'", file_format) from None
    if column is None:
        raise InvalidInput("column", f"given for a {file_format} file")
    try:
        if file_format == "parquet":
            table = arrow.parquet.ParquetFile(path)
            names, batches = table.schema_arrow.names, table.iter_batches(columns=[column])
        else:
            reader = arrow.ipc.open_file(path)
            names, batches = reader.schema.names, (reader.get_batch(i) for i in range(reader.num_record_batches))
        if column not in names:
            raise InvalidInput("column", "one of the file's: " + ", ".join(names), column)
        for batch in batches:
            yield from _cells(batch.column(batch.schema.get_field_index(column)).to_pylist(), column)
    except arrow.ArrowInvalid:
        raise InvalidInput("file", f"a {file_format} file: {path}") from None


def _cells(values: list[Any], column: str) -> Iterator[bytes | str]:
    for value in values:
        if value is None or value in ("", b""):
            continue
        if not isinstance(value, str | bytes):
            raise InvalidInput("column", "text or binary", column)
        yield value
