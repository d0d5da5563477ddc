"""Whatever pandas, polars, pyarrow, DuckDB and the standard library write is read back as exactly the same elements."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veilset._input import text
from veilset._input.csv import CsvForm
from veilset._input.files import FileForm, read_files
from veilset.errors import InvalidInput

# All that text files can hold: no NUL, no byte order mark; a CR alone is quoted by some writers only, see below.
characters = st.one_of(
    st.sampled_from(list("\",;\t\n|' \\#")), st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff")
)
texts = st.text(characters, max_size=12)
tables = st.lists(st.tuples(texts, st.one_of(st.none(), texts), texts), max_size=12)

Rows = list[tuple[str, str | None, str]]
Writer = Callable[[Rows, Path], Any]
NAMES = ["id", "e mail", "x"]


def _frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES, dtype=object)


def _polars(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(NAMES, pl.String), orient="row")


def _table(rows: Rows, kind: pa.DataType | None = None) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(column, kind or pa.string()) for column in columns], names=NAMES)


def _standard(rows: Rows, path: Path, **options: Any) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows([NAMES, *rows])


CSV_WRITERS: dict[str, tuple[Writer, CsvForm]] = {
    "csv": (_standard, CsvForm()),
    "csv, all quoted": (lambda rows, path: _standard(rows, path, quoting=csv.QUOTE_ALL), CsvForm()),
    "csv, unix": (lambda rows, path: _standard(rows, path, dialect="unix"), CsvForm()),
    "csv, tabs": (lambda rows, path: _standard(rows, path, dialect="excel-tab"), CsvForm(delimiter="\t")),
    "pandas": (lambda rows, path: _frame(rows).to_csv(path, index=False), CsvForm()),
    "pandas, ;": (lambda rows, path: _frame(rows).to_csv(path, index=False, sep=";"), CsvForm(delimiter=";")),
    "polars": (lambda rows, path: _polars(rows).write_csv(path), CsvForm()),
    "polars, all quoted": (lambda rows, path: _polars(rows).write_csv(path, quote_style="always"), CsvForm()),
    "pyarrow": (lambda rows, path: pa.csv.write_csv(_table(rows), path), CsvForm()),
    "duckdb": (lambda rows, path: duckdb.from_arrow(_table(rows)).write_csv(str(path), header=True), CsvForm()),
}
TABLE_WRITERS: dict[str, Writer] = {
    "pandas parquet": lambda rows, path: _frame(rows).to_parquet(path),
    "pandas category parquet": lambda rows, path: _frame(rows).astype("category").to_parquet(path),
    "pandas feather": lambda rows, path: _frame(rows).astype("string").to_feather(path),
    "polars parquet": lambda rows, path: _polars(rows).write_parquet(path),
    "polars ipc": lambda rows, path: _polars(rows).write_ipc(path),
    "polars ipc zstd": lambda rows, path: _polars(rows).write_ipc(path, compression="zstd"),
    "polars ipc stream": lambda rows, path: _polars(rows).write_ipc_stream(path),
    "polars categorical ipc": lambda rows, path: _polars(rows).cast(pl.Categorical).write_ipc(path),
    "polars binary parquet": lambda rows, path: _polars(rows).cast(pl.Binary).write_parquet(path),
    "pyarrow parquet": lambda rows, path: pa.parquet.write_table(
        _table(rows, pa.large_string()), path, row_group_size=3
    ),
    "pyarrow parquet 2": lambda rows, path: pa.parquet.write_table(
        _table(rows), path, data_page_version="2.0", use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"
    ),
    "duckdb parquet": lambda rows, path: duckdb.from_arrow(_table(rows)).write_parquet(str(path)),
}


def _read(path: Path, form: FileForm) -> list[str]:
    return [element.decode() for element in read_files([str(path)], form)]


@pytest.mark.parametrize("writer", CSV_WRITERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(rows=tables, block=st.sampled_from([7, 64, 1 << 19]))
def test_csv_is_read_as_it_was_written(writer: str, tmp_path: Path, rows: Rows, block: int) -> None:
    """Every column, wherever blocks begin; what is empty or missing aside."""
    write, form = CSV_WRITERS[writer]
    path = tmp_path / "list.csv"
    write(rows, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK_BYTES", block)
        for place, name in enumerate(NAMES):
            assert _read(path, FileForm("csv", name, form)) == [row[place] for row in rows if row[place]]


@pytest.mark.parametrize("writer", CSV_WRITERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(cells=st.lists(st.text(st.sampled_from('a\r\n",'), min_size=1, max_size=5), min_size=1, max_size=5))
def test_carriage_returns_are_read_or_refused(writer: str, tmp_path: Path, cells: list[str]) -> None:
    """Some writers leave one unquoted, where no reader can tell it from the end of a line."""
    write, form = CSV_WRITERS[writer]
    path = tmp_path / "list.csv"
    write([("1", cell, "x") for cell in cells], path)
    try:
        assert _read(path, FileForm("csv", "e mail", form)) == cells
    except InvalidInput as error:
        assert "carriage return" in error.message or "ends in CR CR LF" in error.message  # noqa: PT017


@pytest.mark.parametrize("writer", TABLE_WRITERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(rows=tables)
def test_tables_are_read_as_they_were_written(writer: str, tmp_path: Path, rows: Rows) -> None:
    """Every column."""
    path = tmp_path / "table"
    try:
        TABLE_WRITERS[writer](rows, path)
    except pa.ArrowException:  # pandas has no type for a column without values
        return
    for place, name in enumerate(NAMES):
        assert _read(path, FileForm(column=name)) == [row[place] for row in rows if row[place]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.lists(st.sampled_from(['"', ",", "\n", "\r\n", "a", "é", '""']), max_size=30).map("".join))
def test_csv_is_what_the_standard_library_reads_or_refused(tmp_path: Path, content: str) -> None:
    """Never other elements, whatever the file: those of the strict reader of the standard library."""
    path = tmp_path / "list.csv"
    path.write_text(content, newline="")
    try:
        found = _read(path, FileForm("csv", "1"))
    except InvalidInput:
        return
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file, strict=True) if row]
    assert found == [row[0] for row in rows if row[0]]
    assert len(set(map(len, rows))) <= 1
