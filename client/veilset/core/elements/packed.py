"""Elements in one buffer, as columns and files hold them, so that they are hashed without a Python object for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.params import MAX_ELEMENT_BYTES, HashParameters, HashScheme, Normalization

_LINE_FEED = 10

_ASCII = 0x80
_LOWER = np.frombuffer(bytes(range(_ASCII)).lower(), dtype=np.uint8)
_SPACE = np.array([chr(code).isspace() for code in range(_ASCII)])
# What the kernel saves for an element, on the machines where this was measured.
_SAVED_IN_LIST = 60e-9
_SAVED_IN_BUFFER = 200e-9


@dataclass(frozen=True, slots=True)
class Origin:
    """Where elements come from: a file's name, "line" or "row", and the number of each, int64 (n,), counted from 1."""

    name: str
    unit: str
    numbers: NDArray[np.int64]

    def place(self, index: int) -> str:
        """Where element ``index`` stands, for people to read."""
        return f"{self.name}, {self.unit} {self.numbers[index]}"


@dataclass(frozen=True, slots=True)
class PackedElements:
    """Element i is data[starts[i]:ends[i]]; iterating gives them as bytes.

    data: uint8; other bytes may lie between and around the elements. starts, ends: int64 (n,), 0 ≤ start ≤ end ≤ len(data).
    origin: where they come from, if that is a file.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    origin: Origin | None = None

    def __post_init__(self) -> None:
        places = (self.starts, self.ends)
        shaped = self.data.ndim == 1 and all(array.shape == (len(self.starts),) for array in places)
        if not shaped or self.data.dtype != np.uint8 or any(array.dtype != np.int64 for array in places):
            raise ValueError("packed elements: data has to be uint8, starts and ends int64 of one length")

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes]:
        if not len(self):
            return
        first = int(self.starts.min())
        whole = self.data[first : int(self.ends.max())].tobytes()
        places = zip((self.starts - first).tolist(), (self.ends - first).tolist(), strict=True)
        for start, end in places:
            yield whole[start:end]

    def cut(self, start: int, size: int) -> PackedElements:
        """At most ``size`` of them from ``start`` on, on the same buffer."""
        return self.select(slice(start, start + size))

    def select(self, chosen: slice | NDArray[np.bool_]) -> PackedElements:
        """Some of them, on the same buffer; chosen: a slice, or a mask of bool (n,)."""
        origin = self.origin and Origin(self.origin.name, self.origin.unit, self.origin.numbers[chosen])
        return PackedElements(self.data, self.starts[chosen], self.ends[chosen], origin)

    def pieces(self, size: int) -> Iterator[PackedElements]:
        """All of them, at most ``size`` at a time."""
        return (self.cut(start, size) for start in range(0, len(self), size))

    def without_empty(self) -> PackedElements:
        """Those of at least one byte."""
        kept = self.ends > self.starts
        return self if kept.all() else self.select(kept)


class PackedStream:
    """Blocks of packed elements as they are read; iterating gives the elements. Can be gone through as often as ``blocks``."""

    def __init__(self, blocks: Callable[[], Iterator[PackedElements]]) -> None:
        self.blocks = blocks

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks():
            yield from block


def pack(elements: list[str] | list[bytes]) -> PackedElements | None:
    """Text or bytes laid end to end, text as UTF-8; None where they are mixed, something else, not Unicode, or hold a line
    feed, which parts them here. Their lengths are not checked."""
    if not elements:
        return None
    try:
        if isinstance(elements[0], str):
            joined = "\n".join(elements).encode()
        elif set(map(type, elements)) == {bytes}:  # join takes other buffers too
            joined = b"\n".join(elements)
        else:
            return None
    except (TypeError, UnicodeError):
        return None
    data = np.frombuffer(joined, dtype=np.uint8)
    parts = find_byte(data, _LINE_FEED)
    if len(parts) != len(elements) - 1:
        return None
    starts, ends = np.zeros(len(elements), dtype=np.int64), np.full(len(elements), len(data), dtype=np.int64)
    np.add(parts, 1, out=starts[1:])
    ends[:-1] = parts
    return PackedElements(data, starts, ends)


def lay_out(elements: list[bytes]) -> PackedElements:
    """Elements as bytes, copied end to end into one buffer."""
    ends = np.cumsum(np.fromiter(map(len, elements), dtype=np.int64, count=len(elements)))
    starts = np.zeros(len(elements), dtype=np.int64)
    starts[1:] = ends[:-1]
    return PackedElements(np.frombuffer(b"".join(elements), dtype=np.uint8), starts, ends)


def pack_lines(block: bytes) -> PackedElements:
    """The lines of a block that ends at the end of a line: without their line feeds and one carriage return before each."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = find_byte(data, _LINE_FEED)
    if len(data) and data[-1] != _LINE_FEED:  # the last line of a file may have none
        ends = np.append(ends, len(data))
    starts = np.zeros(len(ends), dtype=np.int64)
    np.add(ends[:-1], 1, out=starts[1:])
    if b"\r" in block:
        ends = ends - ((ends > starts) & (data[ends - 1] == 13))
    return PackedElements(data, starts, ends)


def find_byte(data: NDArray[np.uint8], value: int) -> NDArray[np.int64]:
    """The indices of a byte in the data, in order; int64."""
    kernels = compiled.kernels()
    if kernels is None:
        return np.flatnonzero(data == value).astype(np.int64, copy=False)
    places = np.empty(int(np.count_nonzero(data == value)), dtype=np.int64)
    kernels.elements.find_byte(compiled.read_only(data), value, places)
    return places


def normalize_packed(packed: PackedElements, profile: Normalization) -> PackedElements | None:
    """The same elements as `normalize` gives, or None where it has to do it, or will refuse one of them.

    "none" leaves bytes as they are. ASCII text is its own NFC; for "trim-casefold" it has one lower-case byte for a byte, and
    spaces to strip that are recognised byte by byte.
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
    """Whether there is a space at each place; False where ``present`` is."""
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
