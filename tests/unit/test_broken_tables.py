"""Tables whose text is not the UTF-8 that they say it is: bytes where a value is, an error where a name is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet
import pytest

from harness.releases import release_view
from veilset.cli.inputs import read_elements
from veilset.cli.packed_inputs import read_blocks
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
