"""Collections of elements, cut into batches for hashing: packed where they lie in Arrow's buffers, else as lists.

An Arrow column of text or bytes is three buffers: which values are missing, offsets (n + 1), and all bytes end to end. pandas and
polars keep text so too and hand it over without a copy where pyarrow is installed. Columns are told by what they can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from veilset._input.columns import batches
from veilset.core.elements.packed import PackedElements, PackedStream

Batch = list[Any] | PackedElements

PIECE = 1 << 14
"""Elements hashed at a time: objects that were just touched are still in the processor's cache when they are packed."""

_OFFSETS = {"string": "<i4", "binary": "<i4", "large_string": "<i8", "large_binary": "<i8"}
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}


def element_batches(elements: Iterable[Any], size: int = PIECE) -> Iterator[Batch]:
    """The elements in batches of at most ``size``, in order; what `veilset._input.columns.batches` gives, but packed where
    that needs no copy. Raises InvalidInput as that does."""
    if type(elements) is list:
        return (elements[start : start + size] for start in range(0, len(elements), size))
    packed = packed_blocks(elements)
    if packed is None:
        return batches(elements, size)
    return (piece for block in packed for piece in block.pieces(size))


def packed_blocks(elements: Any) -> Iterator[PackedElements] | None:
    """The elements in blocks as they lie in memory; None for what does not, or has missing values."""
    if isinstance(elements, PackedElements):
        return iter([elements])
    if isinstance(elements, PackedStream):
        return elements.blocks()
    chunks = [packed for chunk in _arrow_chunks(elements) if (packed := pack_arrow(chunk)) is not None]
    return iter(chunks) if chunks and sum(map(len, chunks)) == len(elements) else None


def _arrow_chunks(elements: Any) -> list[Any]:
    """The Arrow arrays that hold a column's values; empty for what is no column, or of no such library."""
    library = type(elements).__module__.partition(".")[0]
    try:
        if library == "polars" and hasattr(elements, "to_arrow") and find_spec("pyarrow") is not None:
            elements = elements.to_arrow()
        elif library == "pandas" and hasattr(getattr(elements, "array", None), "__arrow_array__"):
            elements = elements.array.__arrow_array__()
        elif library != "pyarrow":
            return []
    except (ImportError, TypeError, ValueError):  # a column of something that Arrow has no array for
        return []
    chunks = getattr(elements, "chunks", None)
    return list(chunks) if isinstance(chunks, list) else [elements]


def pack_arrow(array: Any) -> PackedElements | None:
    """An Arrow array of text or bytes on its own buffers; None if it is of another type or has missing values."""
    kind = str(getattr(array, "type", ""))
    if kind.startswith("dictionary<"):
        array = array.dictionary_decode()
        kind = str(array.type)
    if kind in _VIEWS:
        array, kind = array.cast(_VIEWS[kind]), _VIEWS[kind]
    if kind not in _OFFSETS or array.null_count:
        return None
    _, offsets, values = array.buffers()
    if not len(array) or offsets is None:
        none = np.zeros(0, dtype=np.int64)
        return PackedElements(np.zeros(0, dtype=np.uint8), none, none)
    width = np.dtype(_OFFSETS[kind])
    limits = np.frombuffer(offsets, dtype=width, count=len(array) + 1, offset=array.offset * width.itemsize)
    limits = limits.astype(np.int64, copy=False)
    data = np.frombuffer(values, dtype=np.uint8) if values is not None and values.size else np.zeros(0, dtype=np.uint8)
    if limits[0] < 0 or limits[-1] > len(data) or (limits[1:] < limits[:-1]).any():
        return None  # a broken array: let its own library say so
    return PackedElements(data, limits[:-1], limits[1:])
