"""Elements from files: lines, a CSV column, Parquet or Arrow; gzip by its first bytes; ``-`` is standard input."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import click

from veilset.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("lines", "csv", "parquet", "arrow")
BOM = b"\xef\xbb\xbf"

formats = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="Default: by suffix, csv with --column, else lines."
)
column = click.option("--column", help="Column of a CSV, Parquet or Arrow file: its name, or its number from 1 in CSV.")


def read_elements(path: str, file_format: str | None = None, column: str | None = None) -> Iterator[bytes | str]:
    """Elements of a file one by one, in bounded memory. Empty lines and empty cells are skipped.

    Raises InvalidInput for a file that cannot be read, a missing column or a broken file; no element is repeated.
    """
    chosen = chosen_format(path, file_format, column)
    with reading(path):
        if chosen in ("parquet", "arrow"):
            for found in table_columns(path, chosen, column):
                yield from cells(_listed(found), column or "")
            return
        with open_file(path) as file:
            yield from _read_lines(file) if chosen == "lines" else _read_csv(file, column, _delimiter(path))


@contextmanager
def reading(path: str) -> Iterator[None]:
    """What goes wrong with a file while it is read, as InvalidInput."""
    try:
        yield
    except OSError as error:
        raise InvalidInput("file", f"readable: {path}: {error.strerror or type(error).__name__}") from None
    except (EOFError, zlib.error):
        raise InvalidInput("file", f"a whole gzip file: {path}") from None


def chosen_format(path: str, file_format: str | None, column: str | None) -> str:
    """One of FORMATS: as asked for, else by suffix, else by whether a column is asked for."""
    if file_format is not None:
        return file_format
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    known = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "csv"}
    return known.get(suffix, "csv" if column else "lines")


def open_file(path: str) -> BinaryIO:
    """The file's bytes, unpacked if it is gzip; - is standard input. Raises OSError, InvalidInput for Parquet."""
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
        element = stripped.removeprefix(BOM) if number == 0 else stripped
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


def table_columns(path: str, file_format: str, column: str | None) -> Iterator[Any]:
    """The column of a Parquet or Arrow file as Arrow arrays, piece by piece. Raises InvalidInput."""
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
            yield _validated(batch.column(batch.schema.get_field_index(column)))
    except (arrow.ArrowException, UnicodeDecodeError):  # the latter: a column's name is no UTF-8
        raise InvalidInput("file", f"a {file_format} file: {path}") from None


def _validated(found: Any) -> Any:
    """An Arrow array as it came, once its offsets are known to lie within its buffers; text may be any bytes."""
    as_bytes = {"string": "binary", "large_string": "large_binary"}.get(str(found.type))
    (found.view(as_bytes) if as_bytes else found).validate(full=True)
    return found


def _listed(found: Any) -> list[Any]:
    """The values of an Arrow array; text as its bytes where it is not the UTF-8 that the file says it is."""
    try:
        return list(found.to_pylist())
    except UnicodeDecodeError:
        return list(found.cast("binary").to_pylist())


def cells(values: list[Any], column: str) -> Iterator[bytes | str]:
    """The values that are elements: all but the missing and the empty. Raises InvalidInput for other types."""
    for value in values:
        if value is None or value in ("", b""):
            continue
        if not isinstance(value, str | bytes):
            raise InvalidInput("column", "text or binary", column)
        yield value
