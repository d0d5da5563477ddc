"""Elements from files: lines, a CSV column, Parquet or Arrow; gzip by its first bytes; ``-`` is standard input."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import click

from veilset._input.csv import AS_USUAL, CsvForm, Tally, read_csv
from veilset.core.params import MAX_ELEMENT_BYTES
from veilset.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("lines", "csv", "parquet", "arrow")
BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 20
"""Far above any element: what has no line ends that near is no file of lines, and would end up in memory whole."""
_ROWS = 1 << 13
"""Rows of a Parquet file decoded at a time."""

formats = click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="Default: by suffix, csv with --column, else lines."
)
column = click.option(
    "--column",
    help="Column of a CSV, Parquet or Arrow file: its name or, in a CSV file without a header, its number from 1.",
)


def read_elements(
    path: str,
    file_format: str | None = None,
    column: str | None = None,
    form: CsvForm = AS_USUAL,
    tally: Tally | None = None,
) -> Iterator[bytes | str]:
    """Elements of a file one by one, in bounded memory. Nulls, empty lines and empty cells are skipped, and counted.

    Raises InvalidInput for a file that cannot be read, a missing column or a broken file; no element is repeated.
    """
    tally = tally or Tally()
    chosen = chosen_format(path, file_format, column)
    form.check_used(chosen)
    tally.files += 1
    with reading(path):
        if chosen in ("parquet", "arrow"):
            for found in table_columns(path, chosen, column):
                yield from cells(_listed(found), column or "", tally)
            return
        with open_file(path, chosen) as file:
            yield from _read_lines(file, tally) if chosen == "lines" else read_csv(file, path, column, form, tally)


def locate(
    paths: Sequence[str], file_format: str | None, column: str | None, form: CsvForm, position: int
) -> str | None:
    """Where the element at ``position``, from 0, of these files stands: "FILE, line 7". None where that cannot be told any
    more, as on standard input."""
    left = position
    for path in paths if position >= 0 else ():
        if not Path(path).is_file():  # a pipe is read once
            return None
        tally = Tally()
        for _ in read_elements(path, file_format, column, form, tally):
            if not left:
                kind = "row" if chosen_format(path, file_format, column) in ("parquet", "arrow") else "line"
                return f"{path}, {kind} {tally.line}"
            left -= 1
    return None


@contextmanager
def telling_where(
    paths: Sequence[str], file_format: str | None, column: str | None, form: CsvForm, before: int = 0
) -> Iterator[None]:
    """What is no element is told by its file and line too, beside its position; ``before``: elements ahead of the files'."""
    try:
        yield
    except InvalidInput as error:
        position = error.details.get("position")
        where = locate(paths, file_format, column, form, int(position) - before) if position else None
        if where is not None:
            error.message += f" ({where})"
            error.args = (error.message,)
        raise


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


def open_file(path: str, file_format: str) -> BinaryIO:
    """The file's bytes, unpacked if it is gzip; - is standard input. Raises OSError, InvalidInput for Parquet."""
    if path == "-":
        if sys.stdin.isatty():
            click.echo("veilset: reading elements from the terminal; end with Ctrl-D", err=True)
        return sys.stdin.buffer
    magic = _magic(Path(path))
    if magic == b"PAR1":
        raise InvalidInput("format", "parquet for this file, which is one", file_format)
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


def _read_lines(file: BinaryIO, tally: Tally) -> Iterator[bytes]:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b"")):
        if len(line) == LONGEST_LINE:
            raise line_too_long()
        stripped = line.removesuffix(b"\n").removesuffix(b"\r")
        element = stripped.removeprefix(BOM) if number == 0 else stripped
        if element:
            tally.line = number + 1
            yield element
        elif number or line != BOM:
            tally.skipped += 1


def line_too_long() -> InvalidInput:
    """What is said of a file that goes on for LONGEST_LINE bytes without an end of line."""
    return InvalidInput("file", f"lines of at most {MAX_ELEMENT_BYTES} bytes; one is far longer")


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
            names, batches = table.schema_arrow.names, _parquet_batches(path, table, column)
        else:
            reader = arrow.ipc.open_file(path)
            names, batches = reader.schema.names, (reader.get_batch(i) for i in range(reader.num_record_batches))
        if column not in names:
            raise InvalidInput("column", "one of the file's: " + ", ".join(names), column)
        for batch in batches:
            yield _validated(batch.column(batch.schema.get_field_index(column)))
    except (arrow.ArrowException, UnicodeDecodeError):  # the latter: a column's name is no UTF-8
        raise InvalidInput("file", f"a {file_format} file: {path}") from None


def _parquet_batches(path: str, table: Any, column: str) -> Iterator[Any]:
    """The column's batches. A dictionary's long value would take its length for each row that names it, whatever the size
    of the file, so each row group's dictionary is looked at first. Raises InvalidInput."""
    import pyarrow.compute as compute
    from pyarrow.parquet import ParquetFile

    dictionaries = ParquetFile(path, read_dictionary=[column])
    for group in range(table.num_row_groups):
        first = next(dictionaries.iter_batches(batch_size=1, row_groups=[group], columns=[column]), None)
        values = getattr(first.column(0), "dictionary", None) if first is not None else None
        if values is not None and (compute.max(compute.binary_length(values)).as_py() or 0) > MAX_ELEMENT_BYTES:
            raise InvalidInput("column", f"values of at most {MAX_ELEMENT_BYTES} bytes; one is longer", column)
        yield from table.iter_batches(batch_size=_ROWS, row_groups=[group], columns=[column])


def _validated(found: Any) -> Any:
    """An Arrow array as it came, once its offsets are known to lie within its buffers; text may be any bytes."""
    as_bytes = {"string": "binary", "large_string": "large_binary"}.get(str(found.type))
    (found.view(as_bytes) if as_bytes else found).validate(full=True)
    plain = {"string_view": "large_string", "binary_view": "large_binary"}.get(str(found.type))
    return found.cast(plain) if plain else found


def _listed(found: Any) -> list[Any]:
    """The values of an Arrow array; text as its bytes where it is not the UTF-8 that the file says it is."""
    try:
        return list(found.to_pylist())
    except UnicodeDecodeError:
        return list(found.cast("binary").to_pylist())


def cells(values: list[Any], column: str, tally: Tally) -> Iterator[bytes | str]:
    """The values that are elements: all but the missing and the empty. Raises InvalidInput for other types."""
    for row, value in enumerate(values, tally.line + 1):
        tally.line = row
        if value is None or value in ("", b""):
            tally.skipped += 1
            continue
        if not isinstance(value, str | bytes):
            raise InvalidInput("column", "text or binary", column)
        yield value
