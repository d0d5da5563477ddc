"""`core.elements.normalization` on packed elements, for the cases where it comes to the same without looking at characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.packed import PackedElements
from veilset.core.params import MAX_ELEMENT_BYTES, Normalization

_ASCII = 0x80
_LOWER = np.frombuffer(bytes(range(_ASCII)).lower(), dtype=np.uint8)
_SPACE = np.array([chr(code).isspace() for code in range(_ASCII)])


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
