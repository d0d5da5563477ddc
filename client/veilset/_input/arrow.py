"""Arrow arrays of text or bytes, in every layout that libraries write, as packed elements: on their own buffers where these
hold the values end to end, else piece by piece."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.packed import PackedElements, lay_out
from veilset.core.params import MAX_ELEMENT_BYTES
from veilset.errors import must_be

_OFFSETS = {"string": "<i4", "binary": "<i4", "large_string": "<i8", "large_binary": "<i8"}
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
Mask = NDArray[np.bool_]
_ROWS = 1 << 13
LONGEST_VALUE = 1 << 16
"""Longest value that is written out once for every row that refers to it."""


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
        for piece in _pieces(array, rows):
            yield from pack_arrow(values.take(piece.indices))
    elif kind.startswith("run_end_encoded<"):
        import pyarrow.compute as compute

        for piece in _pieces(array, rows_at_a_time(array.values)):
            yield from pack_arrow(compute.run_end_decode(piece))
    elif kind in _VIEWS:
        for piece in _pieces(array, rows_at_a_time(array)):
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
    """Few enough rows that the values which they refer to can be written out for each of them. Raises InvalidInput."""
    longest = int(_lengths(values).max(initial=0))
    if longest > LONGEST_VALUE:
        raise must_be("column", f"values of at most {MAX_ELEMENT_BYTES} bytes; one is {longest} bytes long")
    return _ROWS if longest <= MAX_ELEMENT_BYTES else _ROWS // (LONGEST_VALUE // MAX_ELEMENT_BYTES)


def _pieces(array: Any, rows: int) -> Iterator[Any]:
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
    """As text, 36 characters each."""
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
