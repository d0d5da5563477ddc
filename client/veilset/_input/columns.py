"""Collections of elements as callers hold them, cut into lists: columns of data frames and arrays, or any iterable.

pandas, polars, Arrow and NumPy columns are told by what they can do, so none of these libraries is needed here. They are
converted piece by piece by their own compiled code; nothing goes through one Python scalar object at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.errors import InvalidInput

BATCH = 1 << 16

Cut = Callable[[int, int], list[Any]]
"""(start, length) → that piece of a column as a list; what is missing in it is None, NaN or the library's own null."""


def batches(elements: Iterable[Any], size: int = BATCH) -> Iterator[list[Any]]:
    """The elements in lists of at most ``size``, in order. Raises InvalidInput for one element, a table, or a matrix."""
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
    if isinstance(elements, str | bytes):
        raise InvalidInput("elements", "a collection of elements, not one of them")
    if hasattr(type(elements), "columns") or getattr(elements, "ndim", 1) != 1:
        raise InvalidInput("elements", "one column, not a table or a matrix", type(elements).__name__)
    if isinstance(elements, np.ndarray):
        return lambda start, length: list(elements[start : start + length].tolist())
    if not hasattr(elements, "to_numpy"):
        return None
    if hasattr(elements, "to_list") and hasattr(elements, "slice"):  # polars
        return lambda start, length: list(elements.slice(start, length).to_list())
    if hasattr(elements, "slice"):  # Arrow
        return lambda start, length: list(elements.slice(start, length).to_numpy(zero_copy_only=False).tolist())
    if hasattr(elements, "iloc"):  # a pandas Series
        return lambda start, length: list(elements.iloc[start : start + length].tolist())
    return lambda start, length: list(elements[start : start + length].tolist())  # a pandas Index or array
