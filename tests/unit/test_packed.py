"""Elements in one buffer are the elements that went in, however they lie there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset._input.columns import element_batches, pack_arrow
from veilset.core.elements.normalization import normalize
from veilset.core.elements.packed import PackedElements, PackedStream, lay_out, normalize_packed, pack, pack_lines
from veilset.core.params import Normalization
from veilset.errors import InvalidInput

texts = st.lists(st.text(max_size=40), min_size=1, max_size=30)
blobs = st.lists(st.binary(max_size=40), min_size=1, max_size=30)
ascii_texts = st.lists(st.text(st.characters(max_codepoint=127), max_size=20), min_size=1, max_size=20)


@given(texts)
def test_text_is_packed_as_utf8(elements: list[str]) -> None:
    """Or not at all, where a line feed is in it."""
    packed = pack(elements)
    if any("\n" in element for element in elements):
        assert packed is None
    else:
        assert packed is not None
        assert list(packed) == [element.encode() for element in elements]
        assert len(packed) == len(elements)


@given(blobs)
def test_bytes_are_packed_as_they_are(elements: list[bytes]) -> None:
    """The same for bytes; `lay_out` takes line feeds too."""
    packed = pack(elements)
    assert (packed is None) == any(b"\n" in element for element in elements)
    if packed is not None:
        assert list(packed) == elements
    assert list(lay_out(elements)) == elements


@pytest.mark.parametrize(
    "elements",
    [
        [],
        ["a", b"b"],
        [b"a", "b"],
        ["a", 1],
        [1, 2],
        [b"a", bytearray(b"b")],
        [b"a", memoryview(b"b")],
        ["a", "\ud800"],
        [None],
    ],
)
def test_what_has_to_be_refused_is_not_packed(elements: list[str]) -> None:
    """The plain code says what is wrong with it, and where."""
    assert pack(elements) is None


@given(blobs, st.integers(1, 7))
def test_pieces_are_all_of_it(elements: list[bytes], size: int) -> None:
    """In order, none longer than asked for; without the empty ones where they are not wanted."""
    packed = lay_out(elements)
    pieces = list(packed.pieces(size))
    assert [element for piece in pieces for element in piece] == elements
    assert max(map(len, pieces)) <= size
    assert list(packed.without_empty()) == [element for element in elements if element]
    stream = PackedStream(lambda: iter(pieces))
    assert list(stream) == list(stream) == elements


def test_a_last_line_without_an_end_counts() -> None:
    """And one with an end makes no line behind it."""
    assert list(pack_lines(b"a\nb")) == list(pack_lines(b"a\nb\n")) == [b"a", b"b"]


COLUMNS = {
    "arrow": pa.array,
    "arrow large": lambda values: pa.array(values, pa.large_string()),
    "arrow binary": lambda values: pa.array([value.encode() for value in values]),
    "arrow view": lambda values: pa.array(values, pa.string_view()),
    "arrow dictionary": lambda values: pa.array(values).dictionary_encode(),
    "arrow chunks": lambda values: pa.chunked_array([values[:3], [], values[3:]], pa.string()),
    "arrow slice": lambda values: pa.array(["before", *values, "behind"]).slice(1, len(values)),
    "polars": pl.Series,
    "pandas arrow": lambda values: pd.Series(values, dtype="string[pyarrow]"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_text_are_packed_where_they_lie(kind: str) -> None:
    """With the values that they have; in batches of the size asked for."""
    values = ["eins", "zwei", "", "dréi", "x" * 100, "line\nfeed", "sechs"]
    column = COLUMNS[kind](values)
    batches = list(element_batches(column, 2))
    assert all(isinstance(batch, PackedElements) and len(batch) <= 2 for batch in batches)
    assert [element for batch in batches for element in batch] == [value.encode() for value in values]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array([1, 2]),
        pl.Series(["a", None]),
        pd.Series(["a", "b"], dtype=object),
        np.array(["a"]),
        ["a"],
    ],
    ids=["arrow null", "arrow numbers", "polars null", "pandas objects", "numpy", "list"],
)
def test_other_columns_are_not_packed(column: Any) -> None:
    """Missing values and other types are for the plain code, which says where they are."""
    assert not any(isinstance(batch, PackedElements) for batch in element_batches(column))


def test_broken_offsets_are_not_followed() -> None:
    """A damaged array must not lead out of its buffer."""
    for offsets in ([0, 5, 2, 9], [0, 99, 2, 9], [0, -4, 2, 9]):
        buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(b"ninebytes")]
        with pytest.raises(InvalidInput, match="offsets lie within"):
            list(pack_arrow(pa.Array.from_buffers(pa.string(), 3, buffers)))


@pytest.mark.parametrize("profile", Normalization)
@given(elements=st.one_of(ascii_texts, texts))
def test_normalisation_of_packed_elements_is_the_same(profile: Normalization, elements: list[str]) -> None:
    """Or is left to the plain code; so is whatever that refuses."""
    found = normalize_packed(lay_out([element.encode() for element in elements]), profile)
    if found is not None:
        assert list(found) == normalize(elements, profile)
    else:
        plain = all(element.isascii() for element in elements) and profile is not Normalization.EMAIL
        if plain or profile is Normalization.NONE:
            with pytest.raises(InvalidInput):
                normalize(elements, profile)
