"""One column of a Parquet or Arrow file, in blocks, with the row of each value."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veilset._input.arrow import is_elements, is_uuid, pack_arrow, rows_at_a_time
from veilset._input.csv import find_column
from veilset._input.expansion import Malformed, check_messages, check_pages
from veilset._input.text import Tally
from veilset.core.elements.packed import Origin, PackedElements
from veilset.errors import InvalidInput, must_be

_ROWS = 1 << 13
"""Rows of a Parquet file decoded at a time."""
_DELTA_ROWS = 16
"""The same where a value may repeat the one before, so that a small page stands for many long values."""


def read_table(path: str, kind: str, column: str | None, tally: Tally) -> Iterator[PackedElements]:
    """The column's values that are neither missing nor empty; kind: "parquet", "arrow" or "arrow stream". Raises InvalidInput."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        what = f"lines or CSV, unless you pip install 'veilset[parquet]': {path} is {kind}"
        raise must_be("file", what) from None
    if column is None:
        raise InvalidInput(
            "column", f"column is needed for {path}, which is {kind}: give the name of one of its columns"
        )
    read = _parquet if kind == "parquet" else _arrow
    before = 0
    try:
        for array in read(path, column, kind):
            yield from _present(array, path, before, tally)
            before += len(array)
    except (pyarrow.ArrowException, OSError, Malformed, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidInput("file", f"file {path} is not a whole, undamaged {kind} file ({reason})") from None


def _parquet(path: str, column: str, kind: str) -> Iterator[Any]:  # noqa: ARG001
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path, memory_map=True) as table, Path(path).open("rb") as file:
        schema = table.schema_arrow
        place = find_column(schema.names, column, path, shown=True)
        _check_type(schema.field(place).type, column, path)
        leaf = sum(_leaves(schema.field(i).type) for i in range(place))
        uuids = table.schema.column(leaf).logical_type.type == "UUID"
        for group in range(table.num_row_groups):
            # Reading no row makes pyarrow look at the chunk's metadata: where these are damaged it raises here, and ends the
            # process in column().
            list(table.reader.iter_batches(0, row_groups=[group], column_indices=[leaf]))
            chunk = table.metadata.row_group(group).column(leaf)
            check_pages(file, chunk, path)
            for batch in table.iter_batches(_rows(path, chunk, group, column), [group], [column]):
                array = batch.column(batch.schema.names.index(column))
                yield _as_uuids(array) if uuids and not is_uuid(array.type) else array


def _leaves(kind: Any) -> int:
    """How many columns of a Parquet file a type takes."""
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) or 1


def _rows(path: str, chunk: Any, group: int, column: str) -> int:
    """How many rows of a chunk to decode at a time: a long value of its dictionary takes its length for each that names it."""
    from pyarrow.parquet import ParquetFile

    if "DELTA_BYTE_ARRAY" in chunk.encodings:
        return _DELTA_ROWS
    if not chunk.has_dictionary_page:
        return _ROWS
    with ParquetFile(path, read_dictionary=[column], memory_map=True) as table:
        first = next(table.iter_batches(1, [group], [column]), None)
        values = getattr(first.column(0), "dictionary", None) if first is not None else None
    return _ROWS if values is None else rows_at_a_time(values)


def _as_uuids(array: Any) -> Any:
    """What older pyarrow reads as 16 bytes each."""
    import pyarrow

    return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), array)


def _arrow(path: str, column: str, kind: str) -> Iterator[Any]:
    import pyarrow
    from pyarrow import ipc

    with Path(path).open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as data:
        check_messages(data, kind, path)
    with pyarrow.memory_map(path) as file:
        schema = (ipc.open_stream(file) if kind == "arrow stream" else ipc.open_file(file)).schema
    place = find_column(schema.names, column, path, shown=True)
    _check_type(schema.field(place).type, column, path)
    options = ipc.IpcReadOptions(included_fields=[place])
    with pyarrow.memory_map(path) as file:
        if kind == "arrow stream":
            batches = iter(ipc.open_stream(file, options=options))
        else:
            reader = ipc.open_file(file, options=options)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        for batch in batches:
            yield batch.column(0)


def _check_type(kind: Any, column: str, path: str) -> None:
    if is_elements(kind):
        return
    name = str(kind).partition("<")[0]
    nested = name in ("struct", "list", "large_list", "fixed_size_list", "map", "list_view", "large_list_view")
    if name in ("dictionary", "run_end_encoded"):
        name = f"{name} of {kind.value_type}"
    remedy = "give a column of its own to the part that is meant" if nested else "cast it to text where it is written"
    raise InvalidInput("column", f"column {column} of {path} is of type {name}; text or binary is needed: {remedy}")


def _present(array: Any, path: str, before: int, tally: Tally) -> Iterator[PackedElements]:
    """The values of one array that are neither missing nor empty. before: rows ahead of it."""
    array.validate(full=True)
    for packed, _ in pack_arrow(array):
        numbers = np.arange(before + 1, before + 1 + len(packed))
        before += len(packed)
        kept = replace(packed, origin=Origin(path, "row", numbers)).without_empty()
        tally.empty += len(packed) - len(kept)
        if is_uuid(array.type):
            tally.uuids += len(kept)
        yield kept
