"""Collections of elements as Python callers hold them, cut into batches: packed where they lie in Arrow's buffers, else as lists.

Columns of pandas, polars, Arrow and NumPy are recognised by what they can do, so none of these libraries is needed here. An
Arrow column of text or bytes lies end to end already, in any of Arrow's layouts; pandas and polars keep text so too and hand it
over without a copy where pyarrow is installed. Others are converted piece by piece by their own compiled code, not one Python
scalar object at a time.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.packed import PackedElements, PackedStream, lay_out
from veilset.core.params import MAX_ELEMENT_BYTES
from veilset.errors import must_be

BATCH = 1 << 16
PIECE = 1 << 14
"""Elements hashed at a time; so few that they are still in the processor's cache when they are packed."""

Batch = list[Any] | PackedElements

Cut = Callable[[int, int], list[Any]]
"""(start, length) → that piece of a column as a list; what is missing in it is None, NaN or the library's own null."""

_OFFSETS = {"string": "<i4", "binary": "<i4", "large_string": "<i8", "large_binary": "<i8"}
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
Mask = NDArray[np.bool_]
_ARROW_ROWS = 1 << 13
LONGEST_VALUE = 1 << 16
"""Longest value, in bytes, that is copied for every row that refers to it."""


def element_batches(elements: Iterable[Any], size: int = PIECE) -> Iterator[Batch]:
    """The elements in batches of at most ``size``, in order: as from `batches`, or packed where that needs no copy. Raises
    InvalidInput as `batches` does."""
    if type(elements) is list:
        return (elements[start : start + size] for start in range(0, len(elements), size))
    if isinstance(elements, PackedElements):
        return elements.pieces(size)
    if isinstance(elements, PackedStream):
        return (piece for block in elements.blocks() for piece in block.pieces(size))
    chunks = _arrow_chunks(elements)
    if chunks and all(is_elements(chunk.type) for chunk in chunks):
        return (batch for chunk in chunks for batch in _arrow_batches(chunk, size))
    return batches(elements, size)


def batches(elements: Iterable[Any], size: int = BATCH) -> Iterator[list[Any]]:
    """The elements in lists of at most ``size``, in order. Raises InvalidInput for one element, an open
    file, a table, or a matrix."""
    cut = _cut(elements)
    return _pieces_of_iterable(iter(elements), size) if cut is None else _pieces_of_column(elements, cut, size)


def _pieces_of_iterable(remaining: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(remaining, size)):
        yield batch


def _pieces_of_column(column: Any, cut: Cut, size: int) -> Iterator[list[Any]]:
    for start in range(0, len(column), size):
        yield cut(start, size)


def is_column(elements: object) -> bool:
    """Whether these are a column or an array, which `select` keeps as one."""
    return _cut(elements) is not None


def select(column: Any, kept: NDArray[np.bool_]) -> Any:
    """The elements of a column at which ``kept`` is true, as a column of the same kind."""
    return column.filter(kept) if hasattr(column, "slice") else column[kept]


def is_null(value: object) -> bool:
    """Whether a value stands for a missing one: None, NaN, NaT, pandas' NA."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def _cut(elements: Any) -> Cut | None:
    """How to cut a column into pieces; None for what is to be iterated over."""
    if isinstance(elements, str | bytes | bytearray | memoryview):
        raise must_be("elements", "a collection of elements, not one of them")
    if isinstance(elements, io.IOBase) or not (hasattr(elements, "__iter__") or hasattr(elements, "__getitem__")):
        what = (
            "a collection of elements; of a file, its lines without their ends: [line.rstrip('\\n') for line in file]"
        )
        raise must_be("elements", what, type(elements).__name__)
    if hasattr(type(elements), "columns") or getattr(elements, "ndim", 1) != 1:
        raise must_be("elements", "one column, not a table or a matrix", type(elements).__name__)
    if isinstance(elements, np.ndarray):
        if elements.dtype.kind == "S":
            return lambda start, length: _fixed_width(elements[start : start + length])
        return lambda start, length: list(elements[start : start + length].tolist())
    if not hasattr(elements, "to_numpy"):
        return None
    if hasattr(elements, "to_list") and hasattr(elements, "slice"):  # polars
        return lambda start, length: list(elements.slice(start, length).to_list())
    if hasattr(elements, "slice"):  # Arrow
        return lambda start, length: list(elements.slice(start, length).to_pylist())
    if hasattr(elements, "iloc"):  # a pandas Series
        return lambda start, length: list(elements.iloc[start : start + length].tolist())
    return lambda start, length: list(elements[start : start + length].tolist())  # a pandas Index or array


def _fixed_width(piece: NDArray[np.bytes_]) -> list[bytes]:
    """The values of an array of bytes of fixed width. Raises InvalidInput where some end in NUL, as NumPy drops these."""
    width = piece.dtype.itemsize
    if width and len(piece) and not np.ascontiguousarray(piece).view(np.uint8).reshape(-1, width)[:, -1].all():
        what = "bytes that all fill the width of their array, as NumPy cannot tell a NUL at the end from filling; pass"
        raise must_be("elements", f"{what} .tolist() where it is filling, .view('V{width}').tolist() where it is not")
    return list(piece.tolist())


def _arrow_chunks(elements: Any) -> list[Any]:
    """The Arrow arrays of a column's values; empty if it has none."""
    library = type(elements).__module__.partition(".")[0]
    try:
        if library == "polars" and hasattr(elements, "to_arrow") and find_spec("pyarrow") is not None:
            if str(getattr(elements, "dtype", "")) == "Object":  # which Arrow would get as addresses
                return []
            elements = elements.to_arrow()
        elif library == "pandas" and hasattr(getattr(elements, "array", None), "__arrow_array__"):
            elements = elements.array.__arrow_array__()
        elif library != "pyarrow":
            return []
    except (ImportError, TypeError, ValueError):  # a column of something that Arrow has no array for
        return []
    chunks = getattr(elements, "chunks", [elements])
    return list(chunks) if isinstance(chunks, list) and all(hasattr(chunk, "buffers") for chunk in chunks) else []


def _arrow_batches(chunk: Any, size: int) -> Iterator[Batch]:
    """The values of an Arrow array in batches; with missing values as lists that have None there."""
    for packed, present in pack_arrow(chunk):
        if present is None:
            yield from packed.pieces(size)
        else:
            values = [value if there else None for value, there in zip(packed, present.tolist(), strict=True)]
            yield from (values[start : start + size] for start in range(0, len(values), size))


def is_elements(kind: Any) -> bool:
    """Whether values of an Arrow type are elements."""
    name = str(kind)
    if name.startswith(("dictionary<", "run_end_encoded<")):
        return is_elements(kind.value_type)
    return name in (*_OFFSETS, *_VIEWS, "null") or name.startswith("fixed_size_binary[") or is_uuid(kind)


def is_uuid(kind: Any) -> bool:
    """Whether an Arrow type is its UUID, whose values are elements as text."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def pack_arrow(array: Any) -> Iterator[tuple[PackedElements, Mask | None]]:
    """The values of an Arrow array of a type that `is_elements`, in order, piece by piece, each with a mask of those that are
    not missing; None where none is. A missing one is empty. Raises InvalidInput."""
    kind = str(array.type)
    if kind.startswith("dictionary<"):
        values = array.dictionary
        rows = rows_at_a_time(values)
        values = (
            values.cast(_VIEWS[str(values.type)]) if str(values.type) in _VIEWS else values
        )  # take has none of these
        for piece in _slices(array, rows):
            yield from pack_arrow(values.take(piece.indices))
    elif kind.startswith("run_end_encoded<"):
        import pyarrow.compute as compute

        for piece in _slices(array, rows_at_a_time(array.values)):
            yield from pack_arrow(compute.run_end_decode(piece))
    elif kind in _VIEWS:
        for piece in _slices(array, rows_at_a_time(array)):
            yield from pack_arrow(piece.cast(_VIEWS[kind]))
    else:
        present = None
        if array.null_count or kind == "null":
            present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        packed = _uuids(array) if is_uuid(array.type) else _on_buffers(array, kind)
        if present is not None:
            packed = PackedElements(packed.data, packed.starts, np.where(present, packed.ends, packed.starts))
        yield packed, present


def rows_at_a_time(values: Any) -> int:
    """How many rows to take at a time, so that copying the value of each takes bounded memory. Raises InvalidInput."""
    longest = int(_lengths(values).max(initial=0))
    if longest > LONGEST_VALUE:
        raise must_be("column", f"values of at most {MAX_ELEMENT_BYTES} bytes; one is {longest} bytes long")
    return _ARROW_ROWS if longest <= MAX_ELEMENT_BYTES else _ARROW_ROWS // (LONGEST_VALUE // MAX_ELEMENT_BYTES)


def _slices(array: Any, rows: int) -> Iterator[Any]:
    return (array.slice(start, rows) for start in range(0, len(array), rows))


def _lengths(values: Any) -> NDArray[np.int64]:
    kind = str(values.type)
    if kind in _VIEWS:
        views = np.frombuffer(values.buffers()[1], dtype="<i4").reshape(-1, 4)
        return views[values.offset : values.offset + len(values), 0].astype(np.int64)
    if kind not in _OFFSETS:  # as wide as its type says, or refused further on
        return np.zeros(1, dtype=np.int64)
    return np.diff(_limits(values, kind))


def _limits(array: Any, kind: str) -> NDArray[np.int64]:
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return np.zeros(1, dtype=np.int64)
    width = np.dtype(_OFFSETS[kind])
    limits = np.frombuffer(offsets, dtype=width, count=len(array) + 1, offset=array.offset * width.itemsize)
    return limits.astype(np.int64, copy=False)


def _uuids(array: Any) -> PackedElements:
    """UUIDs as text of 36 characters; empty where one is missing."""
    values = array.storage.to_pylist()
    return lay_out([str(uuid.UUID(bytes=value)).encode() if value is not None else b"" for value in values])


def _on_buffers(array: Any, kind: str) -> PackedElements:
    if kind == "null":
        return lay_out([b""] * len(array))
    buffer = array.buffers()[-1]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None and buffer.size else np.zeros(0, dtype=np.uint8)
    if kind.startswith("fixed_size_binary["):
        width = array.type.byte_width
        limits = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
    else:
        limits = _limits(array, kind)
    if limits[0] < 0 or limits[-1] > len(data) or (limits[1:] < limits[:-1]).any():
        raise must_be("column", "an Arrow array whose offsets lie within its buffers")
    return PackedElements(data, limits[:-1], limits[1:])
