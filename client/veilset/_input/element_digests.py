"""From elements as callers hold them to digests, alike for producers and readers; what is no element is told by its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._input.columns import is_null
from veilset._input.packed_columns import element_batches
from veilset.core.elements.hashing import digests
from veilset.core.elements.normalization import Element, normalize
from veilset.core.elements.packed import PackedElements
from veilset.core.elements.packed_hashing import packed_digests
from veilset.core.params import FilterParameters, HashParameters, Normalization
from veilset.errors import InvalidInput


def digest_batches(
    elements: Iterable[Element], hashing: HashParameters | FilterParameters, profile: Normalization, key: bytes | None
) -> Iterator[NDArray[np.uint64]]:
    """Digests of the normalised elements, batch by batch, each uint64 (n,), in bounded memory.

    elements: what `veilset._input.columns.batches` takes. Raises InvalidInput naming the position, counted from 0, of what is
    no element; the element itself is not repeated.
    """
    start = 0
    for batch in element_batches(elements):
        yield digest_batch(batch, start, hashing, profile, key)
        start += len(batch)


def digest_batch(
    batch: list[Element] | PackedElements,
    start: int,
    hashing: HashParameters | FilterParameters,
    profile: Normalization,
    key: bytes | None,
) -> NDArray[np.uint64]:
    """`digest_batches` for one batch; ``start`` is the position of its first element."""
    if key is None and (hashed := packed_digests(batch, hashing, profile)) is not None:
        return hashed
    if isinstance(batch, PackedElements):
        batch = list(batch)
    return digests(normalize_batch(batch, start, profile), hashing.scheme, hashing.seed, key)


def normalize_batch(batch: list[Element], start: int, profile: Normalization) -> list[bytes]:
    """`normalize`, with the position of what it refuses."""
    try:
        return normalize(batch, profile)
    except InvalidInput:
        for position, element in enumerate(batch, start):
            _check(element, position, profile)
        raise


def _check(element: Any, position: int, profile: Normalization) -> None:
    try:
        normalize([element], profile)
    except InvalidInput as refused:
        if is_null(element):
            found = "is a null"
        elif not isinstance(element, str | bytes):
            found = f"is of type {type(element).__name__}"
        else:
            found = "is not"
        where = f"{refused.allowed}; the one at position {position}, counted from 0, {found}"
        placed = InvalidInput(refused.field, where)
        placed.details["position"] = str(position)
        raise placed from None
