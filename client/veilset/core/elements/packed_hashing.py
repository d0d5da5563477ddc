"""Digests of packed elements by the compiled kernel, where it is at hand and the elements are of the plain kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.elements.packed import PackedElements, pack
from veilset.core.elements.packed_normalization import normalize_packed
from veilset.core.params import HashParameters, HashScheme, Normalization

# What the kernel saves for an element, on the machines where this was measured.
_SAVED_IN_LIST = 60e-9
_SAVED_IN_BUFFER = 200e-9


def packed_digests(
    batch: list[Any] | PackedElements, hashing: HashParameters, profile: Normalization
) -> NDArray[np.uint64] | None:
    """The digests that `core.elements.hashing.digests` gives for the normalised elements, uint64 (n,); None where it has
    to do it: without the kernel, for a keyed scheme, and for whatever may have to be refused."""
    if hashing.scheme is not HashScheme.MMH3:
        return None
    saved = _SAVED_IN_BUFFER if isinstance(batch, PackedElements) else _SAVED_IN_LIST
    kernels = compiled.kernels(saved * len(batch))
    if kernels is None:
        return None
    packed = batch if isinstance(batch, PackedElements) else pack(batch)
    normalized = normalize_packed(packed, profile) if packed is not None else None
    if normalized is None:
        return None
    data, starts, ends = normalized.data, normalized.starts, normalized.ends
    if not (starts.min() >= 0 and (starts <= ends).all() and ends.max() <= len(data)):
        raise ValueError("packed elements: an element lies outside of the buffer")
    hashed = np.empty(len(normalized), dtype=np.uint64)
    kernels.elements.hash_packed(read_only(data), read_only(starts), read_only(ends), hashing.seed, hashed)
    return hashed
