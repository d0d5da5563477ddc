"""Randomized response against a plain per-bit comparison of the same random bytes with the threshold.

The law of the noise (rates, independence, bounds on epsilon) is audited in tests/statistical/test_audit.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.core.encodings.bloom import response
from veilset.core.encodings.bloom.response import PERTURB_CHUNK_BYTES, perturb
from veilset.errors import InvalidInput

Bits = NDArray[np.uint8]

thresholds = st.one_of(
    st.integers(1, 1 << 63),
    st.sampled_from([1, 255, 1 << 55, 1 << 56, (1 << 56) + 1, 0x44D6 << 48, (1 << 63) - 1, 1 << 63]),
)


class RecordedBytes:
    """A stream of bytes that follow from a name, and what was asked of it. Not random: for comparisons only."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self.calls: list[bytes] = []

    def __call__(self, length: int) -> bytes:
        """The next bytes."""
        given = hashlib.shake_128(self._name + len(self.calls).to_bytes(4, "big")).digest(length)
        self.calls.append(given)
        return given


def plain_flips(calls: list[bytes], threshold: int) -> list[bool]:
    """Whether each bit flips, padding included: its integer is eight plane bits and, at a tie, 56 bits of the tail."""
    flips = []
    for start in range(0, len(calls), 9):
        *planes, tail = calls[start : start + 9]
        words = [int.from_bytes(tail[i : i + 8], "little") for i in range(0, len(tail), 8)]
        for byte in range(len(planes[0])):
            for bit in range(7, -1, -1):
                high = int("".join(str(plane[byte] >> bit & 1) for plane in planes), 2)
                low = words.pop(0) >> 8 if high == threshold >> 56 else 0
                flips.append((high << 56 | low) < threshold)
        assert not words
    return flips


@st.composite
def vectors(draw: st.DrawFn) -> tuple[Bits, int]:
    """A packed vector, padding clear, and its length in bits."""
    values = draw(st.lists(st.booleans(), min_size=1, max_size=400))
    return np.packbits(np.array(values)), len(values)


@settings(max_examples=300)
@given(vectors(), thresholds, st.binary(min_size=8, max_size=8), st.integers(1, 60))
def test_each_bit_flips_as_its_integer_says(
    content: tuple[Bits, int], threshold: int, name: bytes, chunk_bytes: int
) -> None:
    """In chunks of any size, at any threshold, ties included; padding stays clear."""
    vector, bits = content
    source = RecordedBytes(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response, "PERTURB_CHUNK_BYTES", chunk_bytes)
        noisy = perturb(vector, bits, threshold, source)
    assert sum(len(planes) for planes in source.calls[::9]) == len(vector)
    wanted = np.unpackbits(vector)[:bits] ^ np.array(plain_flips(source.calls, threshold))[:bits]
    assert np.array_equal(noisy, np.packbits(wanted))


@settings(max_examples=100)
@given(vectors(), thresholds, st.data())
def test_pieces_from_one_stream_flip_as_their_integers_say(
    content: tuple[Bits, int], threshold: int, data: st.DataObject
) -> None:
    """A vector perturbed in pieces: every byte of the stream is used once, and each bit has its own integer."""
    vector, bits = content
    cuts = sorted(data.draw(st.sets(st.integers(1, len(vector) - 1)))) if len(vector) > 1 else []
    source = RecordedBytes(b"pieces")
    noisy = [
        perturb(vector[start:end], min(8 * end, bits) - 8 * start, threshold, source)
        for start, end in zip([0, *cuts], [*cuts, len(vector)], strict=True)
    ]
    assert len(source.calls) == 9 * len(noisy)
    wanted = np.unpackbits(vector)[:bits] ^ np.array(plain_flips(source.calls, threshold))[:bits]
    assert np.array_equal(np.concatenate(noisy), np.packbits(wanted))


def test_whole_chunks_as_pieces_change_nothing() -> None:
    """Cut between chunks, the pieces together are the release of the whole."""
    bits = 8 * (2 * PERTURB_CHUNK_BYTES + 1000) + 3
    vector = np.packbits(np.arange(bits) % 3 == 0)
    threshold = 0x44D6 << 48
    whole = perturb(vector, bits, threshold, RecordedBytes(b"chunks"))
    source = RecordedBytes(b"chunks")
    pieces = [
        perturb(vector[:PERTURB_CHUNK_BYTES], 8 * PERTURB_CHUNK_BYTES, threshold, source),
        perturb(vector[PERTURB_CHUNK_BYTES:], bits - 8 * PERTURB_CHUNK_BYTES, threshold, source),
    ]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_even_odds_hide_everything() -> None:
    """At T = 2^63 the noisy bit is the first bit of the stream, or its complement: one plane, no ties that flip."""
    source = RecordedBytes(b"coin")
    vector = np.full(100, 0xFF, dtype=np.uint8)
    noisy = perturb(vector, 800, 1 << 63, source)
    assert np.array_equal(noisy, np.frombuffer(source.calls[0], dtype=np.uint8))


def test_least_threshold_flips_zero_only() -> None:
    """At T = 1 nothing but the integer 0 flips a bit."""
    assert perturb(np.zeros(1, dtype=np.uint8), 8, 1, bytes).tolist() == [0xFF]

    def all_but_zero(length: int) -> bytes:
        return bytes(length) if length == 1 else bytes((0, 1, 0, 0, 0, 0, 0, 0)) * (length // 8)

    assert perturb(np.zeros(1, dtype=np.uint8), 8, 1, all_but_zero).tolist() == [0]


def test_padding_of_the_input_is_not_released() -> None:
    """Whatever the padding bits of the input are, those of the release are zeros."""
    for bits in range(1, 25):
        vector = np.full((bits + 7) // 8, 0xFF, dtype=np.uint8)
        assert np.unpackbits(perturb(vector, bits, 1 << 62, RecordedBytes(b"padding")))[bits:].sum() == 0


def test_input_is_read_only() -> None:
    """A vector that cannot be written is enough, nothing of it is changed, and the release shares no memory with it."""
    vector = np.arange(64, dtype=np.uint8)
    vector.flags.writeable = False
    noisy = perturb(vector, 512, 1 << 62, RecordedBytes(b"copy"))
    assert vector.tolist() == list(range(64))
    assert not np.shares_memory(noisy, vector)
    assert noisy.flags.writeable


def test_mapped_vector_gives_a_plain_release(tmp_path: Path) -> None:
    """The release of a mapped file is an array in memory, equal to that of the same bytes."""
    (tmp_path / "vector").write_bytes(bytes(range(32)))
    mapped = np.memmap(tmp_path / "vector", dtype=np.uint8, mode="r")
    noisy = perturb(mapped, 256, 1 << 60, RecordedBytes(b"map"))
    assert type(noisy) is np.ndarray
    assert np.array_equal(noisy, perturb(np.arange(32, dtype=np.uint8), 256, 1 << 60, RecordedBytes(b"map")))


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_serves_as_random_bytes(buffer: type[bytes | bytearray | memoryview]) -> None:
    """bytes, bytearray and memoryview alike."""
    inner = RecordedBytes(b"buffer")
    noisy = perturb(np.zeros(9, dtype=np.uint8), 70, 1 << 60, lambda length: buffer(inner(length)))
    assert np.array_equal(noisy, perturb(np.zeros(9, dtype=np.uint8), 70, 1 << 60, RecordedBytes(b"buffer")))


@pytest.mark.parametrize("given_bytes", [0, 1, 8])
def test_too_few_random_bytes_are_refused(given_bytes: int) -> None:
    """One random byte must not be spread over the vector."""
    with pytest.raises(ValueError, match="buffer"):
        perturb(np.zeros(9, dtype=np.uint8), 72, 1 << 62, lambda length: b"\x5a" * given_bytes)


@pytest.mark.parametrize("threshold", [0, -1, (1 << 63) + 1, 1 << 64])
def test_threshold_out_of_range_is_refused(threshold: int) -> None:
    """No noise and more than even odds are both mistakes."""
    with pytest.raises(InvalidInput, match="threshold"):
        perturb(np.zeros(1, dtype=np.uint8), 8, threshold, bytes)


@pytest.mark.parametrize(("length", "bits"), [(0, 0), (1, 0), (1, -3), (1, 9), (2, 8), (2, 17), (0, 1)])
def test_wrong_length_is_refused(length: int, bits: int) -> None:
    """The vector is exactly as long as its bits need, and has at least one."""
    with pytest.raises(InvalidInput, match="vector"):
        perturb(np.zeros(length, dtype=np.uint8), bits, 1 << 62, bytes)
