"""Collections of elements as Python callers hold them, cut into batches: packed where they lie in Arrow's buffers, else as lists.

Columns of pandas, polars, Arrow and NumPy are told by what they can do, so that none of these libraries is needed here. An
Arrow column of text or bytes lies end to end already; pandas and polars keep text so too and hand it over without a copy where
pyarrow is installed. Others are converted piece by piece by their own compiled code, not one Python scalar object at a time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._input.arrow import is_elements, pack_arrow
from veilset.core.elements.packed import PackedElements, PackedStream
from veilset.errors import must_be

BATCH = 1 << 16
PIECE = 1 << 14
"""Elements hashed at a time: objects that were just touched are still in the processor's cache when they are packed."""

Batch = list[Any] | PackedElements

Cut = Callable[[int, int], list[Any]]
"""(start, length) → that piece of a column as a list; what is missing in it is None, NaN or the library's own null."""


def element_batches(elements: Iterable[Any], size: int = PIECE) -> Iterator[Batch]:
    """The elements in batches of at most ``size``, in order; what `batches` gives, but packed where that needs no copy. Raises
    InvalidInput as that does."""
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
    """NumPy drops the NULs at the end of such bytes, be they filling or not. Raises InvalidInput where some do."""
    width = piece.dtype.itemsize
    if width and len(piece) and not np.ascontiguousarray(piece).view(np.uint8).reshape(-1, width)[:, -1].all():
        what = "bytes that all fill the width of their array, as NumPy cannot tell a NUL at the end from filling; pass"
        raise must_be("elements", f"{what} .tolist() where it is filling, .view('V{width}').tolist() where it is not")
    return list(piece.tolist())


def _arrow_chunks(elements: Any) -> list[Any]:
    """The Arrow arrays that hold a column's values; empty for what is no column, or of no such library."""
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
    """What is missing is None in a list, to be refused by its position."""
    for packed, present in pack_arrow(chunk):
        if present is None:
            yield from packed.pieces(size)
        else:
            values = [value if there else None for value, there in zip(packed, present.tolist(), strict=True)]
            yield from (values[start : start + size] for start in range(0, len(values), size))
