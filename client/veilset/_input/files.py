"""Elements from files: lines, a CSV column, Parquet or Arrow; compressed or not; ``-`` is standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veilset._input.csv import CsvForm, read_cells
from veilset._input.tables import read_table
from veilset._input.text import Tally, check_encoding, read_lines
from veilset._input.unpacking import Opened, opened
from veilset.core.elements.packed import PackedElements, PackedStream
from veilset.errors import InvalidInput, must_be

FORMATS = ("lines", "csv", "parquet", "arrow")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "csv"}
_NULL_LIKE = {
    b"\\N",
    b"NULL",
    b"null",
    b"Null",
    b"nan",
    b"NaN",
    b"NA",
    b"N/A",
    b"n/a",
    b"#N/A",
    b"None",
    b"<NA>",
    b"nil",
    b"NaT",
}


@dataclass(frozen=True, slots=True)
class FileForm:
    """How to read files. file_format: one of FORMATS; None: by the first bytes, else by suffix, else CSV where there is a column.
    column: its name, or its number from 1 in a CSV file. csv: how CSV is laid out. encoding: of text; None: UTF-8."""

    file_format: str | None = None
    column: str | None = None
    csv: CsvForm = field(default_factory=CsvForm)
    encoding: str | None = None


def read_files(paths: Sequence[str], form: FileForm | None = None, tally: Tally | None = None) -> PackedStream:
    """The elements of files, one after the other, in bounded memory. Missing values, empty lines, rows and cells are skipped.

    tally: counts what is skipped. Raises InvalidInput, while they are read, for a file that cannot be read, a missing
    column, or a broken file, with the place and without elements.
    """
    form, tally = form or FileForm(), tally or Tally()
    check_encoding(form.encoding)
    return PackedStream(lambda: (block for path in paths for block in _read_file(path, form, tally) if len(block)))


def _read_file(path: str, form: FileForm, tally: Tally) -> Iterator[PackedElements]:
    tally.files += 1
    with opened(path, form.encoding) as source:
        chosen = _chosen_format(source, path, form)
        _check_used(chosen, form, source.name)
        if chosen == "lines":
            blocks = read_lines(source, form.encoding, tally)
        elif chosen == "csv":
            tabs = _suffix(path) == ".tsv"
            delimiter = form.csv.delimiter or ("\t" if tabs else ",")
            blocks = read_cells(source, form.column, form.csv, delimiter, form.encoding, tally)
        else:
            blocks = read_table(path, source.kind, form.column, tally)
        for block in blocks:
            tally.null_like += _count_null_like(block)
            yield block


def _suffix(path: str) -> str:
    whole = Path(path.lower())
    return Path(whole.stem).suffix if whole.suffix in _PACKED else whole.suffix


def _chosen_format(source: Opened, path: str, form: FileForm) -> str:
    table = source.kind.partition(" ")[0] if source.kind != "text" else ""
    if table:
        if form.file_format not in (None, table):
            raise must_be("format", f"{table} for {source.name}, which is {source.kind}", form.file_format)
        return table
    known = form.file_format or _SUFFIXES.get(_suffix(path))
    if known in ("parquet", "arrow"):
        said = "although --format says so" if form.file_format else "although its name says so"
        raise InvalidInput("file", f"file {source.name} is not {known}, {said}; give the right one by --format")
    return known or ("csv" if form.column else "lines")


def _check_used(chosen: str, form: FileForm, name: str) -> None:
    """Raise InvalidInput for options that do not apply to this format."""
    given = {
        "header": form.csv.header is not None,
        "delimiter": form.csv.delimiter is not None,
        "quotes": not form.csv.quotes,
    }
    for option, there in given.items():
        if there and chosen != "csv":
            raise InvalidInput(option, f"{option} applies to CSV only, and {name} is read as {chosen}; leave it out")
    if form.encoding is not None and chosen not in ("csv", "lines"):
        raise InvalidInput("encoding", f"encoding applies to text only, and {name} is {chosen}; leave it out")
    if form.column is not None and chosen == "lines":
        raise InvalidInput("column", f"column applies to tables only, and {name} is read as lines; leave it out")


def _count_null_like(block: PackedElements) -> int:
    """How many elements look like a program's missing value."""
    short = block.ends - block.starts <= 4
    return sum(element in _NULL_LIKE for element in block.select(short)) if short.any() else 0
