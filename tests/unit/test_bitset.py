"""Packed vectors against one bool per bit in np.packbits order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.response import last_byte_mask
from veilset.core.encodings.bloom.vectors import locate, set_bits
from veilset.core.encodings.interface import count_ones

BITS = 203
places = st.lists(st.integers(0, BITS - 1), max_size=60)


def test_order_is_that_of_redis_bits() -> None:
    """Bit 0 is the highest bit of the first byte, as GETBIT counts."""
    vector = np.zeros(2, dtype=np.uint8)
    set_bits(vector, np.array([0, 15, 6], dtype=np.uint64))
    assert vector.tolist() == [0b10000010, 0b00000001]


@given(st.lists(st.booleans(), min_size=BITS, max_size=BITS), places)
def test_set_and_read_as_unpacked(values: list[bool], chosen: list[int]) -> None:
    """Setting leaves the other bits alone, repeated positions do no harm, and reading gives what is there."""
    plain = np.array(values)
    vector = np.packbits(plain)
    positions = np.array(chosen, dtype=np.uint64)
    assert np.array_equal(vectors.test_bits(vector, positions), plain[positions.astype(np.intp)])
    set_bits(vector, positions)
    plain[positions.astype(np.intp)] = True
    assert np.array_equal(vector, np.packbits(plain))
    everywhere = np.arange(BITS, dtype=np.uint64)
    assert np.array_equal(vectors.test_bits(vector, everywhere), plain)


def test_shape_is_kept() -> None:
    """Positions of shape (n, k) give answers of shape (n, k)."""
    vector = np.zeros(8, dtype=np.uint8)
    positions = np.array([[1, 9, 17], [1, 2, 63]], dtype=np.uint64)
    set_bits(vector, positions[:1])
    assert vectors.test_bits(vector, positions).tolist() == [[True, True, True], [True, False, False]]
    assert vectors.test_bits(vector, positions[:0]).shape == (0, 3)


@given(st.integers(0, (1 << 40) - 1))
def test_locate_is_exact_to_the_largest_length(position: int) -> None:
    """Byte and mask of any position below 2^40."""
    byte, mask = locate(np.array([position], dtype=np.uint64))
    assert (int(byte[0]), int(mask[0])) == (position // 8, 1 << (7 - position % 8))


@given(st.binary(max_size=300), st.integers(1, 40))
def test_ones_are_counted_in_chunks(content: bytes, chunk_bytes: int) -> None:
    """Chunks of any size, vectors of any length, also none."""
    vector = np.frombuffer(content, dtype=np.uint8)
    assert count_ones(vector, chunk_bytes) == count_ones(vector) == int.from_bytes(content, "big").bit_count()


def test_count_does_not_overflow() -> None:
    """More ones than fit in the width of an element."""
    assert count_ones(np.full(100_000, 0xFF, dtype=np.uint8)) == 800_000


@pytest.mark.parametrize("bits", range(1, 18))
def test_last_byte_mask_keeps_the_vectors_bits(bits: int) -> None:
    """The mask is the last byte of a vector of ones."""
    assert last_byte_mask(bits) == int(np.packbits(np.ones(bits, dtype=np.uint8))[-1])
