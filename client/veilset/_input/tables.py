"""One column of a Parquet or Arrow file, in blocks, with the row of each value.

A few kilobytes can stand for gigabytes there, and pyarrow has no limit of its own. So the memory that each piece takes is read
from its own header first: Parquet's page headers are Thrift structs of the compact protocol (parquet-format, PageHeader), Arrow's
messages flatbuffers (arrow/format/Message.fbs).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veilset._input.columns import is_elements, is_uuid, pack_arrow, rows_at_a_time
from veilset._input.csv import find_column
from veilset._input.text import Tally
from veilset.core.elements.packed import Origin, PackedElements
from veilset.core.params import MAX_ELEMENT_BYTES
from veilset.errors import InvalidInput, must_be

_ROWS = 1 << 13
"""Rows of a Parquet file that are decoded at a time."""
_DELTA_ROWS = 16
"""As `_ROWS`, for encodings in which a small page can hold many long values that repeat each other."""

PAGE_LIMIT = 32 << 20
"""Most memory, in bytes, that a page of a Parquet file may take."""

MESSAGE_LIMIT = 128 << 20
"""Most memory, in bytes, that a record batch of an Arrow file may take, and all its dictionaries together."""

_SMALLER = "write the file again with smaller pages, row groups or batches"
_HEADER = 1 << 16
_CONTINUES = b"\xff\xff\xff\xff"
_DICTIONARY, _RECORD_BATCH = 2, 3


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
    """UUIDs that older versions of pyarrow read as 16 bytes each."""
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


class Malformed(Exception):
    """The file is not what its format says."""


def check_pages(file: Any, chunk: Any, name: str) -> None:
    """Raises InvalidInput where a page of a Parquet column chunk takes too much, or must hold values longer than elements.

    file: readable at any place. chunk: pyarrow's ColumnChunkMetaData. Raises Malformed.
    """
    begin = min((place for place in (chunk.dictionary_page_offset, chunk.data_page_offset) if place), default=0)
    place, end = begin, begin + chunk.total_compressed_size
    while place < end:
        file.seek(place)
        length, header = _thrift(file.read(_HEADER))
        size, packed = _number(header, 2), _number(header, 3)
        values = max(
            _number(header.get(kind), 1) for kind in (5, 7, 8)
        )  # of a data page, a dictionary, a page of version 2
        delta = "DELTA_BYTE_ARRAY" in chunk.encodings  # values repeat parts of earlier ones there
        limit = PAGE_LIMIT >> 5 if delta else PAGE_LIMIT
        if not 0 <= size <= max(limit, 2 * MAX_ELEMENT_BYTES) or packed < 0:
            raise _too_large("pages", size, limit, name)
        if size > PAGE_LIMIT >> 5 and size > values * 2 * MAX_ELEMENT_BYTES:
            raise InvalidInput(
                "column", f"column of {name} has values far longer than an element, {MAX_ELEMENT_BYTES} bytes at most"
            )
        place += length + packed


def check_messages(data: bytes | mmap.mmap, kind: str, name: str) -> None:
    """Raises InvalidInput where a packed record batch of an Arrow file, or all its dictionaries, take too much; Malformed.

    data: the whole file. kind: "arrow", which has a list of its messages in its footer, or "arrow stream"."""
    dictionaries = 0
    try:
        for message, body in _messages_by_footer(data) if kind == "arrow" else _messages_in_order(data):
            kind_of_message, size = _unpacked_size(message, data, body)
            dictionaries += size if kind_of_message == _DICTIONARY else 0
            if max(size, dictionaries) > MESSAGE_LIMIT:
                raise _too_large("batches and dictionaries", max(size, dictionaries), MESSAGE_LIMIT, name)
    except (struct.error, OverflowError):
        raise Malformed from None


def _messages_by_footer(data: bytes | mmap.mmap) -> Iterator[tuple[_Table, int]]:
    """Each message, and where its body begins. The footer stands before its length and the mark ARROW1."""
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    for blocks in (2, 3):
        for offset, length, _ in _root(data, footer).structs(blocks, "<qi4xq"):
            marked = data[offset : offset + 4] == _CONTINUES
            yield _root(data, offset + (8 if marked else 4)), offset + length


def _messages_in_order(data: bytes | mmap.mmap) -> Iterator[tuple[_Table, int]]:
    place = 0
    while place + 8 <= len(data):
        length = struct.unpack_from("<i", data, place + 4)[0]
        if data[place : place + 4] != _CONTINUES or length <= 0:
            return
        message, body = _root(data, place + 8), place + 8 + length
        yield message, body
        place = body + message.number(3, "<q")
        if place < body:
            raise Malformed


def _unpacked_size(message: _Table, data: bytes | mmap.mmap, body: int) -> tuple[int, int]:
    """The kind of a message, and how many bytes its buffers take beside the file itself."""
    kind, batch = message.number(1, "<B"), message.table(2)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1)
    if kind not in (_DICTIONARY, _RECORD_BATCH) or batch is None or batch.table(3) is None:  # neither, or not packed
        return kind, 0
    buffers = ((offset, length) for offset, length in batch.structs(2, "<qq") if length)
    return kind, sum(max(0, struct.unpack_from("<q", data, body + offset)[0]) for offset, _ in buffers)


def _too_large(pieces: str, size: int, limit: int, name: str) -> InvalidInput:
    return InvalidInput(
        "file",
        f"file {name} is refused: one of its {pieces} takes {size} bytes, and {limit >> 20} MiB are the most; {_SMALLER}",
    )


def _root(data: bytes | mmap.mmap, place: int) -> _Table:
    return _Table(data, place + struct.unpack_from("<I", data, place)[0])


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes | mmap.mmap, place: int) -> None:
        self._data, self._place = data, place

    def _field(self, index: int) -> int:
        """Where a field is; 0 if it is absent."""
        fields = self._place - struct.unpack_from("<i", self._data, self._place)[0]
        if 4 + 2 * index >= struct.unpack_from("<H", self._data, fields)[0]:
            return 0
        offset: int = struct.unpack_from("<H", self._data, fields + 4 + 2 * index)[0]
        return self._place + offset if offset else 0

    def number(self, index: int, form: str) -> int:
        place = self._field(index)
        return int(struct.unpack_from(form, self._data, place)[0]) if place else 0

    def table(self, index: int) -> _Table | None:
        place = self._field(index)
        return _root(self._data, place) if place else None

    def structs(self, index: int, form: str) -> Iterator[tuple[int, ...]]:
        """A vector of structs."""
        place = self._field(index)
        if place:
            place += struct.unpack_from("<I", self._data, place)[0]
            for i in range(struct.unpack_from("<I", self._data, place)[0]):
                yield struct.unpack_from(form, self._data, place + 4 + struct.calcsize(form) * i)


def _thrift(data: bytes) -> tuple[int, dict[int, Any]]:
    """A struct at the beginning: how many bytes it takes, and its fields: numbers, and structs in it; the rest is passed over."""
    try:
        reader = _Compact(data)
        found = reader.structure()
    except (IndexError, RecursionError):
        raise Malformed from None
    return reader.place, found


def _number(fields: Any, field: int) -> int:
    """A field of a struct; 0 where either is something else."""
    found = fields.get(field) if isinstance(fields, dict) else None
    return found if isinstance(found, int) else 0


class _Compact:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found

    def structure(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            delta, kind = kind >> 4, kind & 15
            number = number + delta if delta else self._zigzag()
            found[number] = bool(kind == 1) if kind in (1, 2) else self._value(kind)
        return found

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _value(self, kind: int) -> Any:
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.structure()
        if kind in (9, 10):
            size = self._byte()
            count = size >> 4 if size >> 4 < 15 else self._varint()
            for _ in range(count):
                self._value(size & 15)
        elif kind in (1, 2, 3):
            self._byte()
        elif kind in (7, 8):
            length = 8 if kind == 7 else self._varint()
            self.place += length
        else:
            raise Malformed
        return None
