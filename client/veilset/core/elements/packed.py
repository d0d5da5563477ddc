"""Elements that lie in one buffer, as columns and files hold them, so that they can be hashed without a Python object each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled

_LINE_FEED = 10


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

    data: uint8, with other bytes between and around the elements at will. starts, ends: int64 (n,), 0 ≤ start ≤ end ≤ len(data).
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
    """Any bytes, end to end."""
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
    """Where a byte is, in order."""
    kernels = compiled.kernels()
    if kernels is None:
        return np.flatnonzero(data == value).astype(np.int64, copy=False)
    places = np.empty(int(np.count_nonzero(data == value)), dtype=np.int64)
    kernels.elements.find_byte(compiled.read_only(data), value, places)
    return places
