"""Partial vectors and the checksum of their chunks, without a service."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilset import PartialVector
from veilset.core.elements.hashing import digests
from veilset.core.elements.keys import key_check
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.encodings.bloom.vector_digest import VectorDigest
from veilset.core.params import FilterParameters, HashScheme, Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput, WrongKey

SHAPE = FilterParameters(2 * 8 * CHUNK_BYTES + 77, 3, seed=11)
ELEMENTS = [b"element %d" % number for number in range(2000)]


def whole(chunks: Iterable[tuple[int, bytes]], shape: FilterParameters = SHAPE) -> bytes:
    """The vector that the chunks make."""
    vector = bytearray(shape.vector_bytes)
    for index, bits in chunks:
        vector[index * CHUNK_BYTES : index * CHUNK_BYTES + len(bits)] = bits
    assert len(vector) == shape.vector_bytes
    return bytes(vector)


def filter_of(elements: list[bytes], shape: FilterParameters = SHAPE, key: bytes | None = None) -> bytes:
    """The vector that the service makes of elements."""
    vector = np.zeros(shape.vector_bytes, dtype=np.uint8)
    bloom.insert(vector, shape, digests(elements, shape.scheme, shape.seed, key))
    return vector.tobytes()


def test_it_is_the_filter_of_its_elements() -> None:
    """However they come, and whichever parts they are divided into."""
    one, other = PartialVector(SHAPE), PartialVector(SHAPE)
    assert one.add(ELEMENTS[:1200]) == 1200
    assert other.add(iter(ELEMENTS[1000:])) == 1000
    one.unite(other)
    assert whole(one.chunks()) == filter_of(ELEMENTS)
    assert whole(other.chunks()) == filter_of(ELEMENTS[1000:])


def test_chunks_without_ones_are_left_out() -> None:
    """An empty part has none at all; the others come by rising index."""
    assert list(PartialVector(SHAPE).chunks()) == []
    part = PartialVector(FilterParameters(1 << 30, 1, seed=5))
    part.add(ELEMENTS[:3])
    indexes = [index for index, _ in part.chunks()]
    assert indexes == sorted(set(indexes))
    assert 1 <= len(indexes) <= 3


def test_elements_are_normalised_and_keyed_as_the_set_says() -> None:
    """A secret that is not the set's is told before it answers wrongly."""
    key = bytes(range(20))
    shape = FilterParameters(10_000, 2, HashScheme.BLAKE2B, 5, key_check(key))
    part = PartialVector(shape, Normalization.EMAIL, key=key)
    part.add([" Alice@EXAMPLE.com"])
    assert whole(part.chunks(), shape) == filter_of([b"alice@example.com"], shape, key)
    with pytest.raises(WrongKey):
        PartialVector(shape, key=key[::-1])


@pytest.mark.parametrize(
    "other",
    [
        PartialVector(FilterParameters(SHAPE.bits, 3, seed=12)),
        PartialVector(FilterParameters(SHAPE.bits + 1, 3, seed=11)),
        PartialVector(SHAPE, Normalization.NFC),
    ],
)
def test_parts_of_other_parameters_do_not_unite(other: PartialVector) -> None:
    """Their bits mean other elements."""
    with pytest.raises(InvalidInput, match="other"):
        PartialVector(SHAPE).unite(other)


def test_what_is_no_element_is_refused_without_being_told() -> None:
    """As in an upload."""
    with pytest.raises(InvalidInput) as refused:
        PartialVector(SHAPE).add(["fine", "secret" * 1000])
    assert "secret" not in str(refused.value)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 3)), st.integers(1, 50))
def test_the_digest_counts_what_was_left_out(present: set[int], tail: int) -> None:
    """Any chunks of a vector, the last one short, or none."""
    length = 3 * CHUNK_BYTES + tail
    vector = bytearray(length)
    digest = VectorDigest()
    for index in sorted(present):
        start = index * CHUNK_BYTES
        bits = bytes([index + 1]) * min(CHUNK_BYTES, length - start)
        vector[start : start + len(bits)] = bits
        digest.add(index, bits)
        assert digest.chunks == index + 1
    assert digest.finish(length) == hashlib.sha256(vector).digest()


def test_a_digest_does_not_go_back() -> None:
    """A chunk twice would count twice."""
    digest = VectorDigest()
    digest.add(1, bytes(CHUNK_BYTES))
    with pytest.raises(ValueError, match="chunk 1"):
        digest.add(1, bytes(CHUNK_BYTES))
