"""Tables whose text is not the UTF-8 that they say it is: bytes where a value is, an error where a name is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet
import pytest

from harness.releases import release_view
from veilset._input.files import LONGEST_LINE, read_elements
from veilset._input.packed_files import read_blocks
from veilset.core.elements.packed import PackedElements
from veilset.core.params import FilterParameters
from veilset.errors import InvalidInput

BROKEN = arrow.Array.from_buffers(arrow.string(), 2, arrow.array([b"a\xff", b"b"]).buffers())


def _write(path: Path, table: arrow.Table) -> None:
    if path.suffix == ".parquet":
        arrow.parquet.write_table(table, path)
    else:
        with arrow.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_value_comes_as_its_bytes(tmp_path: Path, suffix: str) -> None:
    """Whatever mix of text and bytes it is, the elements are these bytes."""
    path = tmp_path / f"list{suffix}"
    _write(path, arrow.table({"email": BROKEN}))
    assert list(read_elements(str(path), None, "email")) == [b"a\xff", b"b"]


def test_a_broken_name_is_refused(tmp_path: Path) -> None:
    """The file, by name."""
    path = tmp_path / "list.parquet"
    _write(path, arrow.table({"email": ["a"], "nqme": ["b"]}))
    path.write_bytes(path.read_bytes().replace(b"nqme", b"n\xffme"))
    with pytest.raises(InvalidInput, match="a parquet file"):
        list(read_elements(str(path), None, "email"))


def test_a_column_in_memory() -> None:
    """An answer for each, or InvalidInput with the position: nothing else."""
    view = release_view([b"a\xff"], FilterParameters(64, 1), 30.0)
    try:
        assert view.contains_many(BROKEN).tolist()[0]
    except InvalidInput as error:
        assert "0" in str(error)  # noqa: PT017


@pytest.mark.parametrize("offsets", [[0, 1000, 2000], [0, -5, 1], [5, 1, 2]])
@pytest.mark.parametrize("read", [read_elements, read_blocks])
def test_offsets_that_point_elsewhere_are_refused(tmp_path: Path, offsets: list[int], read: Callable[..., Any]) -> None:
    """Before anything is read through them."""
    path = tmp_path / "list.arrow"
    _write(path, arrow.table({"email": ["abcdefg", "hij"]}))
    whole, right = path.read_bytes(), struct.pack("<3i", 0, 7, 10)
    assert whole.count(right) == 1
    path.write_bytes(whole.replace(right, struct.pack("<3i", *offsets)))
    with pytest.raises(InvalidInput, match="arrow file"):
        list(read(str(path), None, "email"))


@pytest.mark.parametrize(
    "kind",
    [arrow.string_view(), arrow.binary_view(), arrow.large_string(), arrow.dictionary(arrow.int32(), arrow.string())],
)
@pytest.mark.parametrize("read", [read_elements, read_blocks])
def test_every_kind_of_text_is_read(tmp_path: Path, kind: arrow.DataType, read: Callable[..., Any]) -> None:
    """Missing and empty values are passed over in all of them."""
    path = tmp_path / "list.arrow"
    values = (
        [b"alice@example.com", None, b"", b"bob"]
        if kind == arrow.binary_view()
        else ["alice@example.com", None, "", "bob"]
    )
    _write(
        path,
        arrow.table(
            {"email": arrow.array(values).cast(kind) if "view" not in str(kind) else arrow.array(values, kind)}
        ),
    )
    found = [
        element for block in read(str(path), None, "email") for element in ([block] if read is read_elements else block)
    ]
    assert [element.encode() if isinstance(element, str) else element for element in found] == [
        b"alice@example.com",
        b"bob",
    ]


@pytest.mark.parametrize("read", [read_elements, read_blocks])
def test_a_small_parquet_file_takes_little_memory(tmp_path: Path, read: Callable[..., Any]) -> None:
    """One long value that every row names is refused before it is written out for each of them."""
    path = tmp_path / "list.parquet"
    column = arrow.DictionaryArray.from_arrays(arrow.array([0] * 65_536, arrow.int32()), arrow.array(["x" * 100_000]))
    arrow.parquet.write_table(arrow.table({"email": column}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 2000
    with pytest.raises(InvalidInput, match="one is longer"):
        list(read(str(path), None, "email"))
    assert arrow.default_memory_pool().max_memory() < 1 << 30


@pytest.mark.parametrize("read", [read_elements, read_blocks])
def test_a_file_without_line_ends_is_refused(tmp_path: Path, read: Callable[..., Any]) -> None:
    """Before all of it is in memory."""
    path = tmp_path / "list.txt"
    path.write_bytes(b"a\n" + b"x" * (LONGEST_LINE + 5_000_000))
    with pytest.raises(InvalidInput, match="far longer"):
        list(read(str(path)))


@pytest.mark.parametrize("column", ["0", "00"])
def test_columns_are_numbered_from_1(tmp_path: Path, column: str) -> None:
    """0 is none of them."""
    path = tmp_path / "list.csv"
    path.write_text("id,email\n1,a\n")
    with pytest.raises(InvalidInput, match="from 1"):
        list(read_elements(str(path), "csv", column))


@pytest.mark.parametrize("column", ["٣", "²"])
def test_other_digits_are_names(tmp_path: Path, column: str) -> None:
    """Of columns that are not there."""
    path = tmp_path / "list.csv"
    path.write_text("id,email\n1,a\n")
    with pytest.raises(InvalidInput, match="a name in the first row"):
        list(read_elements(str(path), "csv", column))


def test_packed_elements_are_what_they_say() -> None:
    """The compiled kernels read where starts and ends point, so these have to be of one length."""
    data: Any = np.zeros(16, np.uint8)
    one: Any = np.array([3])
    two: Any = np.zeros(2, np.int64)
    for starts, ends in ((two, one), (one, two), (two.astype(np.int32), two), (two.reshape(1, 2), two.reshape(1, 2))):
        with pytest.raises(ValueError, match="packed elements"):
            PackedElements(data, starts, ends)
