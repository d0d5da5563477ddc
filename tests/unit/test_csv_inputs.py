"""Columns of CSV files: header or none, delimiters; what is skipped is counted, and where an element stands is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from veilset._input.csv import CsvForm, Tally
from veilset._input.files import locate, read_elements
from veilset._input.packed_files import read_files
from veilset.errors import InvalidInput


@pytest.mark.parametrize(
    ("column", "header", "found"),
    [
        ("mail", None, ["a", "b"]),
        ("mail", True, ["a", "b"]),
        ("2", None, ["mail", "a", "b"]),
        ("2", False, ["mail", "a", "b"]),
        ("2", True, ["a", "b"]),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_header_is_none_of_the_elements_where_there_is_one(
    tmp_path: Path, column: str, header: bool | None, found: list[str], delimiter: str
) -> None:
    """By default one is there where the column is a name."""
    path = tmp_path / "table.csv"
    path.write_text("id,mail\n1,a\n2,\n3,b\n".replace(",", delimiter))
    form, tally = CsvForm(header, None if delimiter == "," else delimiter), Tally()
    assert list(read_files([str(path)], None, column, form, tally)) == found
    assert (tally.files, tally.skipped) == (1, 1)


def test_a_name_needs_a_header(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,mail\n")
    with pytest.raises(InvalidInput, match="a number from 1 with --no-header"):
        list(read_elements(str(tmp_path / "table.csv"), None, "mail", CsvForm(header=False)))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, tuple[str, str | None]]:
    """The same elements, a, b and c, with two empty places before b, and the column to give."""
    values = ["a", "", None, "b", "c"]
    (tmp_path / "lines.txt").write_text("a\n\n\nb\nc")
    (tmp_path / "table.csv").write_text('mail\na\n""\n""\nb\nc\n')
    table = pa.table({"mail": values})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet", row_group_size=2)
    with pa.ipc.new_file(str(tmp_path / "table.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    columns = {"lines.txt": None, "table.csv": "mail", "table.parquet": "mail", "table.arrow": "mail"}
    return {name: (str(tmp_path / name), column) for name, column in columns.items()}


@pytest.mark.parametrize("name", ["lines.txt", "table.csv", "table.parquet", "table.arrow"])
def test_what_is_empty_is_skipped_and_counted(files: dict[str, tuple[str, str | None]], name: str) -> None:
    """Alike for those that are read one by one and by the block."""
    path, column = files[name]
    one_by_one, by_block = Tally(), Tally()
    found: list[list[str | bytes]] = [
        list(read_elements(path, None, column, tally=one_by_one)),
        list(read_files([path], None, column, tally=by_block)),
    ]
    for elements, tally in zip(found, (one_by_one, by_block), strict=True):
        assert [e if isinstance(e, str) else e.decode() for e in elements] == ["a", "b", "c"]
        assert (tally.files, tally.skipped) == (1, 2)


@pytest.mark.parametrize(
    ("name", "place"),
    [("lines.txt", "line 4"), ("table.csv", "line 5"), ("table.parquet", "row 4"), ("table.arrow", "row 4")],
)
def test_an_element_is_told_by_file_and_line(files: dict[str, tuple[str, str | None]], name: str, place: str) -> None:
    """Counted over all files; past the end, and on standard input, nothing is told."""
    path, column = files[name]
    for before in (0, 3):
        paths = [path] * (1 + before // 3)
        assert locate(paths, None, column, CsvForm(), before + 1) == f"{path}, {place}"
    assert locate([path], None, column, CsvForm(), 3) is None
    assert locate([path], None, column, CsvForm(), -1) is None
    assert locate(["-", path], None, column, CsvForm(), 0) is None
