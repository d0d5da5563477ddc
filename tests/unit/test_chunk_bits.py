"""Ones of chunks in two forms: whatever is united with whatever, it is the union."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.core.elements.hashing import digests, positions
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.encodings.bloom.chunk_bits import CHUNK_BITS, ChunkBits, pack, split_positions, unite
from veilset.core.params import FilterParameters
from veilset.core.release.header import CHUNK_BYTES

FEW = CHUNK_BYTES // 4


def packed(places: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """A chunk bit by bit, as np.packbits has it."""
    bits = np.zeros(CHUNK_BITS, dtype=np.uint8)
    bits[places] = 1
    return np.packbits(bits)


def in_both_forms(places: list[int]) -> list[ChunkBits]:
    """The same ones as places and as a packed chunk."""
    found = np.unique(np.array(places, dtype=np.uint32))
    return [found, packed(found)]


@settings(max_examples=20)
@given(st.lists(st.integers(0, CHUNK_BITS - 1), max_size=30), st.lists(st.integers(0, CHUNK_BITS - 1), max_size=30))
def test_a_union_is_one_in_any_form(left: list[int], right: list[int]) -> None:
    """Places and packed chunks in all four pairings."""
    expected = in_both_forms(left + right)[1].tobytes()
    for one in in_both_forms(left):
        for other in in_both_forms(right):
            assert pack(unite(one, other), CHUNK_BYTES) == expected


def test_the_shorter_form_is_taken() -> None:
    """Up to a quarter of the bytes as places, above that packed, so a contribution is never longer than a chunk."""
    spaced = np.arange(0, 8 * FEW, 8, dtype=np.uint64)
    ((_, few),) = split_positions(spaced)
    ((_, many),) = split_positions(np.append(spaced, np.uint64(1)))
    assert (str(few.dtype), len(few)) == ("uint32", FEW)
    assert (str(many.dtype), len(many)) == ("uint8", CHUNK_BYTES)
    grown = unite(few, np.array([1], dtype=np.uint32))
    assert grown.tobytes() == many.tobytes()


def test_what_others_hold_is_not_changed() -> None:
    """A union changes its left side only, and that only if it may."""
    left, right = packed(np.array([5], np.uint32)), packed(np.array([9], np.uint32))
    left.flags.writeable = False
    before = left.tobytes(), right.tobytes()
    united = unite(left, right)
    assert (left.tobytes(), right.tobytes()) == before
    assert unite(united, np.array([77], np.uint32)) is united


@pytest.mark.parametrize("bits", [100, CHUNK_BITS, CHUNK_BITS + 1, 5 * CHUNK_BITS + 12345, 1 << 40])
def test_positions_are_split_by_chunks(bits: int) -> None:
    """Every position in its chunk, at its place; duplicates once; also beyond 32 bits."""
    hashed = digests([b"element %d" % number for number in range(500)], seed=3)
    found = positions(hashed, bits, 3)
    split = dict(split_positions(found))
    assert list(split) == sorted(split)
    back = [index * CHUNK_BITS + int(place) for index, ones in split.items() for place in ones]
    assert back == sorted(set(found.ravel().tolist()))
    assert list(split_positions(found[:0])) == []


def test_parts_of_any_division_make_the_filter() -> None:
    """Many small contributions, united chunk by chunk, are the vector that inserting makes."""
    shape = FilterParameters(2 * CHUNK_BITS + 77, 4, seed=9)
    hashed = digests([b"element %d" % number for number in range(3000)], seed=9)
    vector = np.zeros(shape.vector_bytes, dtype=np.uint8)
    bloom.insert(vector, shape, hashed)
    contributions: dict[int, list[ChunkBits]] = {}
    for start in range(0, 3000, 170):
        for index, ones in split_positions(positions(hashed[start : start + 170], shape.bits, shape.hashes)):
            contributions.setdefault(index, []).append(ones)
    sizes = [CHUNK_BYTES, CHUNK_BYTES, shape.vector_bytes - 2 * CHUNK_BYTES]
    made = [pack(reduce(unite, contributions.get(i, [np.zeros(0, np.uint32)])), size) for i, size in enumerate(sizes)]
    assert b"".join(made) == vector.tobytes()
