"""Bloom vectors against sets of Python integers, one element at a time."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.shapes import FilterParameters
from veilset.core.elements.hashing import digests, sorted_distinct
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.bloom.vectors import positions
from veilset.core.encodings.interface import CHUNK_BYTES, MemoryVector

elements = st.lists(st.integers(0, 60).map(lambda i: b"element %d" % i), max_size=80)
shapes = st.builds(FilterParameters, bits=st.integers(8, 400), hashes=st.integers(1, 8), seed=st.integers(0, 9))


def built(shape: FilterParameters, *batches: list[bytes]) -> NDArray[np.uint8]:
    """The vector of all batches."""
    vector = np.zeros(shape.vector_bytes, dtype=np.uint8)
    for batch in batches:
        vectors.insert(vector, shape.bits, shape.hashes, digests(batch, shape.scheme, shape.seed))
    return vector


def ones_of(vector: NDArray[np.uint8]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(vector)).tolist())


@settings(max_examples=300)
@given(shapes, elements)
def test_insert_sets_the_positions_and_nothing_else(shape: FilterParameters, chosen: list[bytes]) -> None:
    hashed = digests(chosen, shape.scheme, shape.seed)
    assert ones_of(built(shape, chosen)) == set(positions(hashed, shape.bits, shape.hashes).ravel().tolist())


@settings(max_examples=300)
@given(shapes, elements, st.randoms(use_true_random=False))
def test_order_repetition_and_batches_leave_no_trace(
    shape: FilterParameters, chosen: list[bytes], shuffler: Random
) -> None:
    """Permuted, repeated and split at will, the same elements give the same bits."""
    changed = chosen + shuffler.choices(chosen, k=len(chosen)) if chosen else []
    shuffler.shuffle(changed)
    cut = shuffler.randint(0, len(changed))
    assert np.array_equal(built(shape, changed[:cut], changed[cut:]), built(shape, chosen))


@given(shapes, elements, elements)
def test_readings_are_those_of_the_positions(
    shape: FilterParameters, members: list[bytes], others: list[bytes]
) -> None:
    """Ones among the distinct positions of each, of members all of them."""
    vector = built(shape, members)
    hashed = digests([*members, *others], shape.scheme, shape.seed)
    read = vectors.read(shape.bits, shape.hashes, MemoryVector(vector), hashed)
    distinct, ones = np.divmod(read, shape.hashes + 1)
    assert (ones == distinct)[: len(members)].all()
    places = [set(row) for row in positions(hashed, shape.bits, shape.hashes).tolist()]
    assert ones.tolist() == [len(row & ones_of(vector)) for row in places]
    assert distinct.tolist() == [len(row) for row in places]
    one = [vectors.read_one(shape.bits, shape.hashes, vector.data, digest) for digest in hashed.tolist()]
    assert one == read.tolist()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.sampled_from([8, 1000, 8 * CHUNK_BYTES, 8 * CHUNK_BYTES + 1, 20_000_003]),
    st.integers(1, 2),
    elements,
)
def test_encoding_goes_front_to_back_whatever_the_chunks(
    size: int, bits: int, hashes: int, chosen: list[bytes]
) -> None:
    """Without noise (T = 1 and a stream of ones), the pieces are the vector of an insert, of the lengths of a release."""
    hashed = sorted_distinct(digests(chosen))
    chunks = [hashed[start : start + size] for start in range(0, len(hashed), size)]
    pieces = list(BloomParameters(bits, hashes, 1, 1).encode(chunks, lambda count: b"\xff" * count))
    length = (bits + 7) // 8
    assert [len(piece) for piece in pieces] == [min(CHUNK_BYTES, length - at) for at in range(0, length, CHUNK_BYTES)]
    assert b"".join(pieces) == built(FilterParameters(bits, hashes), chosen).tobytes()
