"""Columns of pandas, polars, Arrow and NumPy as callers hold them: the answers of the list, and a place for what is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harness.releases import release_view
from veilset._input import columns
from veilset.core.params import FilterParameters, Normalization
from veilset.errors import InvalidInput

MEMBERS = [f"user{number}" for number in range(700)]
ASKED = [text for pair in zip(MEMBERS, [f"andré{n}" for n in range(700)], strict=True) for text in pair]
BYTES = [text.encode() for text in ASKED]
VIEW = release_view(MEMBERS, FilterParameters(8192, 2, seed=5), 6.0)
ANSWERS = VIEW.contains_many(ASKED)

COLUMNS: dict[str, Any] = {
    "numpy str": np.array(ASKED),
    "numpy bytes": np.array(BYTES),
    "numpy objects": np.array(ASKED, dtype=object),
    "numpy mixed objects": np.array([*ASKED[:500], *BYTES[500:]], dtype=object),
    "numpy StringDType": np.array(ASKED, dtype=np.dtypes.StringDType()),
    "numpy strided": np.array([text for text in ASKED for _ in range(2)])[::2],
    "pandas": pd.Series(ASKED, index=range(7, 7 + len(ASKED))),
    "pandas objects": pd.Series(BYTES, dtype=object),
    "pandas string": pd.Series(ASKED, dtype="string"),
    "pandas arrow": pd.Series(ASKED, dtype=pd.ArrowDtype(pa.string())),
    "pandas category": pd.Series(ASKED, dtype="category"),
    "pandas index": pd.Index(ASKED),
    "pandas array": pd.Series(ASKED).array,
    "polars": pl.Series(ASKED),
    "polars bytes": pl.Series(BYTES),
    "polars categories": pl.Series(ASKED, dtype=pl.Categorical),
    "arrow": pa.array(ASKED),
    "arrow bytes": pa.array(BYTES),
    "arrow large": pa.array(ASKED, pa.large_string()),
    "arrow view": pa.array(ASKED, pa.string_view()),
    "arrow dictionary": pa.array(ASKED).dictionary_encode(),
    "arrow slice": pa.array(["before", *ASKED, "behind"]).slice(1, len(ASKED)),
    "arrow chunks": pa.chunked_array([ASKED[:3], [], ASKED[3:900], ASKED[900:]]),
}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces of a short column."""
    monkeypatch.setattr(columns.batches, "__defaults__", (257,))


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_is_answered_like_the_list(kind: str) -> None:
    """Numpy booleans and scores, in order; nothing of the column's own index or chunks shows."""
    column = COLUMNS[kind]
    found = VIEW.contains_many(column)
    assert type(found) is np.ndarray
    assert (str(found.dtype), found.tolist()) == ("bool", ANSWERS.tolist())
    assert VIEW.scores(column).tolist() == VIEW.scores(ASKED).tolist()
    assert VIEW.posteriors(column, 0.1).tolist() == VIEW.posteriors(ASKED, 0.1).tolist()
    assert VIEW.overlap(column) == VIEW.overlap(ASKED)


@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind != "arrow view"])  # which Arrow itself cannot filter
def test_filter_gives_back_a_column_of_the_same_kind(kind: str) -> None:
    column = COLUMNS[kind]
    kept = VIEW.filter(column)
    assert type(kept) is type(column)
    as_bytes = [text if isinstance(text, bytes) else text.encode() for piece in columns.batches(kept) for text in piece]
    assert as_bytes == [text.encode() for text, member in zip(ASKED, ANSWERS.tolist(), strict=True) if not member]
    assert list(VIEW.filter_stream(column)) == [text for piece in columns.batches(kept) for text in piece]


@pytest.mark.parametrize("kind", COLUMNS)
def test_an_empty_column_has_no_answers(kind: str) -> None:
    assert VIEW.contains_many(COLUMNS[kind][:0]).tolist() == []


@pytest.mark.parametrize(
    "make",
    [
        lambda texts: texts,
        iter,
        lambda texts: np.array(texts, dtype=object),
        pd.Series,
        lambda texts: pd.Series(texts, dtype=object),
        lambda texts: pd.Series(texts, dtype="string"),
        lambda texts: pd.Series(texts, dtype="category"),
        lambda texts: pd.Series([pd.NaT if text is None else text for text in texts], dtype=object),
        pl.Series,
        pa.array,
        lambda texts: pa.array(texts).dictionary_encode(),
        lambda texts: pa.chunked_array([texts[:300], texts[300:]]),
    ],
)
def test_a_null_is_refused_by_its_place(make: Any) -> None:
    """Whatever the library's own null is; the element beside it is not repeated."""
    with pytest.raises(InvalidInput, match=r"element: .*position 600, counted from 0, is a null") as caught:
        VIEW.contains_many(make([*ASKED[:600], None, "marker"]))
    assert "marker" not in caught.value.message
    with pytest.raises(InvalidInput, match="position 600"):
        list(VIEW.filter_stream(make([*ASKED[:600], None, "marker"])))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (7, "str or bytes; the one at position 300, counted from 0, is of type int"),
        ("", "bytes long; the one at position 300, counted from 0, is not"),
        ("\ud800marker", "valid Unicode text .* the one at position 300, counted from 0, is not"),
    ],
)
def test_anything_that_is_no_element_is_refused_by_its_place(bad: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        VIEW.contains_many([*ASKED[:300], bad, *ASKED])  # type: ignore[list-item]
    assert caught.value.field == "element"
    assert "marker" not in caught.value.message


def test_a_column_is_normalised_like_the_list() -> None:
    view = release_view(MEMBERS, FilterParameters(8192, 2, seed=5), 6.0, normalization=Normalization.TRIM_CASEFOLD)
    shouted = [f" {text.upper()} " for text in ASKED]
    assert view.contains_many(pa.array(shouted)).tolist() == view.contains_many(ASKED).tolist()


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": ASKED}),
        pl.DataFrame({"a": ASKED}),
        pl.LazyFrame({"a": ASKED}),
        pa.table({"a": ASKED}),
        pa.record_batch({"a": ASKED}),
        np.array([ASKED, ASKED]),
        np.array("user1"),
    ],
)
def test_a_table_is_no_column(table: Any) -> None:
    """Iterating over one would ask about the names of its columns."""
    with pytest.raises(InvalidInput, match="one column, not a table or a matrix"):
        VIEW.contains_many(table)


def test_numbers_are_no_elements() -> None:
    for column in (np.arange(3), pd.Series([1, 2]), pl.Series([1, 2]), pa.array([1, 2])):
        with pytest.raises(InvalidInput, match="position 0, counted from 0, is of type int"):
            VIEW.contains_many(column)


def test_none_of_the_libraries_is_imported_by_us() -> None:
    """A reader that asks with lists and arrays pays for none of them."""
    script = (
        "import sys, numpy, veilset, veilset._reader.view, veilset._reader.reader, veilset._reader.follower\n"
        "import veilset._reader.remote_view, veilset._service.service\n"
        "from veilset._input import columns\n"
        "assert list(columns.batches(numpy.array(['a', 'b']))) == [['a', 'b']]\n"
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.splitlines()} & {"pandas", "polars", "pyarrow"}
