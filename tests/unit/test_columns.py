"""Columns of pandas, polars, Arrow and NumPy as callers hold them: the answers of the list, and a place for what is wrong."""

from __future__ import annotations

import datetime
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harness.releases import release_view
from harness.shapes import FilterParameters
from veilset._input import columns
from veilset.core.params import Normalization
from veilset.errors import InvalidInput

MEMBERS = [f"user{number}" for number in range(700)]
ASKED = [text for pair in zip(MEMBERS, [f"andré{n}" for n in range(700)], strict=True) for text in pair]
BYTES = [text.encode() for text in ASKED]
VIEW = release_view(MEMBERS, FilterParameters(8192, 2, seed=5), 6.0)
ANSWERS = VIEW.contains_many(ASKED)

COLUMNS: dict[str, Any] = {
    "numpy str": np.array(ASKED),
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
    with pytest.raises(InvalidInput, match=r"element must .*index 600, a null") as caught:
        VIEW.contains_many(make([*ASKED[:600], None, "marker"]))
    assert "marker" not in caught.value.message
    with pytest.raises(InvalidInput, match="index 600"):
        list(VIEW.filter_stream(make([*ASKED[:600], None, "marker"])))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (7, r"str or bytes.* \(not so: index 300, int\)"),
        ("", r"bytes long \(not so: index 300\)"),
        ("\ud800marker", r"valid Unicode text .* \(not so: index 300\)"),
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


@pytest.mark.parametrize("make", [lambda array: array, lambda array: array[::2], lambda array: array[:0]])
def test_full_fixed_width_bytes_are_elements(make: Any) -> None:
    """NumPy's bytes that all fill their width have nothing to lose."""
    digests = make(np.array([b"ab", b"cd", b"\0f", b"gh"], dtype="S2"))
    assert [value for batch in columns.batches(digests) for value in batch] == digests.tolist()


def test_padded_fixed_width_bytes_are_refused() -> None:
    """A NUL at the end may be filling or part of an element; the sentence names the cast for both."""
    with pytest.raises(InvalidInput, match=r"\.tolist\(\) where it is filling, \.view\('V3'\)\.tolist\(\)") as caught:
        VIEW.contains_many(np.array([b"ab\0", b"abc"]))
    assert caught.value.field == "elements"
    assert np.array([b"ab\0", b"abc"]).view("V3").tolist() == [b"ab\0", b"abc"]


def test_open_files_are_refused(tmp_path: Path) -> None:
    """Their lines end in line feeds, which no element has."""
    (tmp_path / "list.txt").write_text("user1\n")
    for mode in ("r", "rb"):
        with (tmp_path / "list.txt").open(mode) as file, pytest.raises(InvalidInput, match="without their ends"):
            VIEW.contains_many(file)


UUIDS = [uuid.UUID(int=number) for number in range(20)]


@pytest.mark.parametrize(
    "make",
    [
        lambda values: values,
        lambda values: np.array(values, dtype=object),
        lambda values: pd.Series(values, dtype=object),
        lambda values: pa.array([value.bytes for value in values], pa.uuid()),
        lambda values: pa.chunked_array([pa.array([value.bytes for value in values], pa.uuid())]),
        lambda values: pl.Series(values, dtype=pl.Object),
    ],
)
def test_uuids_are_their_text(make: Any) -> None:
    """In every container, alike for producers and readers."""
    view = release_view([str(value) for value in UUIDS[:10]], FilterParameters(8192, 2, seed=5), 30.0)
    assert view.contains_many(make(UUIDS)).tolist() == view.contains_many([str(value) for value in UUIDS]).tolist()


@pytest.mark.parametrize(
    "value", [7, 7.5, Decimal("7"), np.int64(7), np.float32(7.5), True, datetime.date(2026, 1, 1), bytearray(b"user1")]
)
def test_other_types_are_refused_with_the_cast(value: Any) -> None:
    """One by one and in lists, so that no type is hashed in two ways."""
    for ask in (lambda: value in VIEW, lambda: VIEW.contains_many([value])):
        with pytest.raises(InvalidInput, match=r"for instance by str\(x\)"):
            ask()


def test_numpy_scalars_are_what_they_hold() -> None:
    """NumPy's str and bytes are Python's."""
    member, other = MEMBERS[3], "andré3"
    for text in (member, other):
        assert (np.str_(text) in VIEW) == (np.bytes_(text.encode()) in VIEW) == (text in VIEW)


def test_all_invalid_elements_are_counted_and_ten_named() -> None:
    """From all batches."""
    asked = [element for text in ASKED[:600] for element in (text, "")]
    with pytest.raises(InvalidInput, match=r"\(not so: index 1; index 3; .*; index 19\), and 590 more$") as caught:
        VIEW.contains_many(asked)
    assert caught.value.details["position"] == "1"
    assert caught.value.details["invalid"] == "600"


def test_numbers_are_no_elements() -> None:
    for column in (np.arange(3), pd.Series([1, 2]), pl.Series([1, 2]), pa.array([1, 2])):
        with pytest.raises(InvalidInput, match="index 0, int"):
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
