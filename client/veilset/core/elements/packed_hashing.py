"""Digests of packed elements by the compiled kernel, where it is at hand and the elements are of the plain kind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.elements.packed import PackedElements, pack
from veilset.core.params import MAX_ELEMENT_BYTES, HashParameters, HashScheme, Normalization

_ASCII = 0x80
_LOWER = np.frombuffer(bytes(range(_ASCII)).lower(), dtype=np.uint8)
_SPACE = np.array([chr(code).isspace() for code in range(_ASCII)])
# What the kernel saves for an element, on the machines where this was measured.
_SAVED_IN_LIST = 60e-9
_SAVED_IN_BUFFER = 200e-9


def normalize_packed(packed: PackedElements, profile: Normalization) -> PackedElements | None:
    """The same elements as `normalize` gives, or None where it has to do it, or will refuse one of them.

    "none" leaves bytes as they are. ASCII text is its own NFC; for "trim-casefold" it has one lower-case byte for a byte, and
    spaces to strip that can be told byte by byte.
    """
    if profile is Normalization.EMAIL or not len(packed):
        return None
    found: PackedElements | None = packed
    if profile is not Normalization.NONE:
        found = _normalize_ascii(packed, profile)
    if found is None:
        return None
    lengths = found.ends - found.starts
    return found if lengths.min() >= 1 and lengths.max() <= MAX_ELEMENT_BYTES else None


def _normalize_ascii(packed: PackedElements, profile: Normalization) -> PackedElements | None:
    first = int(packed.starts.min())
    data = packed.data[first : int(packed.ends.max())]
    if not len(data) or data.max() >= _ASCII:
        return None
    if profile is Normalization.NFC:
        return packed
    starts, ends = packed.starts - first, packed.ends - first
    while (leading := _is_space(data, starts, starts < ends)).any():
        starts += leading
    while (trailing := _is_space(data, ends - 1, starts < ends)).any():
        ends -= trailing
    return PackedElements(_LOWER[data], starts, ends)


def _is_space(data: NDArray[np.uint8], places: NDArray[np.int64], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether there is a space at each place; False where none is looked at."""
    return np.asarray(present & _SPACE[data[np.where(present, places, 0)]])


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
