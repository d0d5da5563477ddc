"""Files as real exports are: the elements that a person would read in them, or one sentence that names the place and what to do.

Small inputs lie in tests/data/inputs; each stands for a kind, and others of the kind are made here.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import threading
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from veilset import _system
from veilset._input import columns, tables, text, unpacking
from veilset._input.csv import CsvForm
from veilset._input.digests import InvalidElements, only_valid
from veilset._input.files import FileForm, read_files
from veilset._input.text import Tally
from veilset.core.params import MAX_ELEMENT_BYTES, Normalization
from veilset.errors import InvalidInput

CASES = Path(__file__).parent.parent / "data" / "inputs"
PEOPLE = ["alice@example.com", "bob@example.com", "carol@example.com"]
LINES = "".join(f"{person}\n" for person in PEOPLE).encode()


def form(
    column: str | None = None, file_format: str | None = None, encoding: str | None = None, **csv: Any
) -> FileForm:
    return FileForm(file_format, column, CsvForm(**csv), encoding)


def read(path: Path | str, wanted: FileForm | None = None, tally: Tally | None = None) -> list[str]:
    """The elements as text."""
    return [element.decode() for element in read_files([str(path)], wanted, tally)]


def refusal(path: Path | str, wanted: FileForm | None = None) -> str:
    """What is said of a file; nothing of it may have come through after that."""
    with pytest.raises(InvalidInput) as caught:
        read(path, wanted)
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message or caught.value.field == "column"
    return caught.value.message


EMAIL = form("email")
READ: dict[str, tuple[str, FileForm, list[str], Tally]] = {
    "a row without anything": ("trailblank.csv", EMAIL, PEOPLE, Tally(1, empty=1)),
    "null-like text": ("nulls.csv", EMAIL, ["\\N", "NULL", PEOPLE[0]], Tally(1, null_like=2)),
    "no quotes": (
        "pgdump.tsv",
        form("email", delimiter="\t", quotes=False),
        [PEOPLE[0], '"bob@example.com', PEOPLE[2], "dave@example.com"],
        Tally(1),
    ),
    "a named encoding": ("utf16le.txt", form(encoding="utf-16"), PEOPLE, Tally(1)),
    "two gzip members": ("multi.txt.gz", FileForm(), PEOPLE[:2], Tally(1)),
    "xz": ("list.txt.xz", FileForm(), PEOPLE, Tally(1)),
    "a polars categorical": ("plcat.arrow", EMAIL, PEOPLE, Tally(1)),
    "a line feed in a cell": ("forge.csv", EMAIL, ["x\nyes\tadmin@example.com"], Tally(1)),
}
REFUSED: dict[str, tuple[str, FileForm, str]] = {
    "two Arrow columns of a name": ("dup.arrow", EMAIL, "columns 1 and 2 have it"),
    "two Parquet columns of a name": ("dup.parquet", EMAIL, "columns 1 and 2 have it"),
    "two CSV columns of a name": ("dupheader.csv", EMAIL, "columns 1 and 2 have it"),
    "a quote never closed": ("unclosed.csv", EMAIL, "opens one in line 3 that is never closed"),
    "quotes of another meaning": (
        "pgdump.tsv",
        EMAIL,
        "line 3 that is never closed; for a file without quoting give --no-quotes",
    ),
    "rows of different lengths": ("ragged.csv", EMAIL, "has 3 cells in line 2 and 2 in its first row"),
    "line ends of old Macs": (
        "oldmac.txt",
        FileForm(),
        r"line 1 has a carriage return .* convert it, for instance by tr",
    ),
    "UTF-16": ("utf16le.txt", FileForm(), "--encoding utf-16"),
    "a zip archive": ("list.zip", FileForm(), "is a zip archive"),
    "a struct": ("nested.parquet", form("contact"), "is of type struct"),
}


@pytest.mark.parametrize("case", READ)
def test_cases_give_what_a_person_reads(case: str) -> None:
    """And count what was skipped or looks odd."""
    name, wanted, elements, counted = READ[case]
    tally = Tally()
    assert (read(CASES / name, wanted, tally), tally) == (elements, counted)


@pytest.mark.parametrize("case", REFUSED)
def test_cases_are_refused_by_name_and_place(case: str) -> None:
    """With what to do."""
    name, wanted, words = REFUSED[case]
    with pytest.raises(InvalidInput, match=words):
        read(CASES / name, wanted)


def test_invalid_addresses_are_named_by_line() -> None:
    """All of them, or skipped and counted."""
    stream, invalid = read_files([str(CASES / "bad-addresses.txt")]), InvalidElements()
    assert [element.decode() for element in only_valid(stream, Normalization.EMAIL, invalid)] == PEOPLE
    with pytest.raises(InvalidInput, match=r"bad-addresses.txt, line 2; .*bad-addresses.txt, line 4\)$"):
        invalid.refuse()
    skipped = InvalidElements(skip=True)
    assert len(list(only_valid(stream, Normalization.EMAIL, skipped))) == 3
    skipped.refuse()
    assert skipped.count == 2


# Kinds of files


def _tar(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo("list.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _zip(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("xl/workbook.xml", content)
    return made.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": unpacking.zstd.compress,  # type: ignore[attr-defined] # the standard library's, from Python 3.14 on
}


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("name", ["list.txt", "list.gz", "list", "list.csv"])
def test_packed_files_are_told_by_their_first_bytes(tmp_path: Path, packing: str, name: str) -> None:
    """Whatever they are called, in one stream or several, padded with zeros or not."""
    pack = PACKERS[packing]
    halves = pack(LINES[:20]) + pack(LINES[20:])
    for content in (pack(LINES), halves, *([halves + bytes(8)] if packing in ("gzip", "xz") else [])):
        (tmp_path / name).write_bytes(content)
        wanted = form("1", header=False) if name.endswith(".csv") else None
        assert read(tmp_path / name, wanted) == PEOPLE


@pytest.mark.parametrize("name", ["list.gz", "list.xz", "list.txt.zst", "list.bz2"])
def test_plain_text_of_any_name_is_read(tmp_path: Path, name: str) -> None:
    """A suffix is no promise."""
    (tmp_path / name).write_bytes(LINES)
    assert read(tmp_path / name) == PEOPLE


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("cut", [3, 7, 20, -1])
def test_cut_packed_files_are_refused(tmp_path: Path, packing: str, cut: int) -> None:
    """Not read as far as they go."""
    (tmp_path / "list").write_bytes(PACKERS[packing](LINES)[:cut])
    if cut == 3 and packing in ("bzip2", "xz", "zstd"):
        return  # too short to be told from text
    assert "whole" in refusal(tmp_path / "list")


@pytest.mark.parametrize("packing", PACKERS)
def test_what_follows_a_packed_stream_is_refused(tmp_path: Path, packing: str) -> None:
    """It would be elements to one program and nothing to another."""
    (tmp_path / "list").write_bytes(PACKERS[packing](LINES) + b"dave@example.com\n")
    assert "whole" in refusal(tmp_path / "list")


CONTAINERS = {
    "zip": (_zip(LINES), "zip archive"),
    "an empty zip": (b"PK\x05\x06" + bytes(18), "empty zip"),
    "old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "Excel"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(30), "7z"),
    "rar": (b"Rar!\x1a\x07\x01\x00", "rar"),
    "sqlite": (b"SQLite format 3\x00" + bytes(80), "SQLite"),
    "avro": (b"Obj\x01\x04\x16avro", "Avro"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF"),
    "tar": (_tar(LINES), "tar archive"),
    "binary": (b"alice@example.com\nbob\0@example.com\n", "NUL byte in line 2"),
    "utf-16 without a mark": (LINES.decode().encode("utf-16-le"), "--encoding utf-16-le"),
    "utf-16 big-endian": (LINES.decode().encode("utf-16-be"), "--encoding utf-16-be"),
    "utf-32": (LINES.decode().encode("utf-32-le"), "--encoding utf-32-le"),
    "utf-32 with a mark": (LINES.decode().encode("utf-32"), "--encoding utf-32"),
    "latin-1": ("alice\nmüller@example.com\n".encode("latin-1"), "not in line 2; --encoding names another"),
    "a mark in the middle": (LINES + b"\xef\xbb\xbf" + LINES, r"U\+FEFF\).*line 4"),
    "CR CR LF": (LINES.replace(b"\n", b"\r\r\n"), "line 1 ends in CR CR LF"),
    "a CR within": (b"alice\r\nbob\rby\r\n", "line 2 has a carriage return"),
    "a surrogate": (b"alice\n\xed\xa0\x80\n", "not in line 2"),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("wanted", [FileForm(), form("1", "csv")], ids=["lines", "csv"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_what_is_no_text_is_refused(tmp_path: Path, kind: str, wanted: FileForm, packed: bool) -> None:
    """By what it is, as lines and as CSV, also within gzip."""
    content, words = CONTAINERS[kind]
    (tmp_path / "list.txt").write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InvalidInput, match=words):
        read(tmp_path / "list.txt", wanted)


def test_a_file_packed_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(gzip.compress(lzma.compress(LINES)))
    assert "compressed again" in refusal(tmp_path / "list")


@pytest.mark.parametrize("start", [b"", b"BZh9 is a name", b"PAR1 street", b"ORC", b"PK", b"%PDX", b"\xc3\xbf"])
def test_text_that_begins_like_a_container_is_text(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "list.txt").write_bytes(start + b"\n" + LINES)
    assert read(tmp_path / "list.txt")[-3:] == PEOPLE


def test_a_byte_order_mark_at_the_beginning_is_dropped(tmp_path: Path) -> None:
    """Before lines, before a header, and in every encoding that has one."""
    mark = "\ufeff"
    for encoding in (None, "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"):
        content = mark + "email,id\n" + ",1\n".join(PEOPLE) + ",1\n"
        (tmp_path / "list.csv").write_bytes(content.encode(encoding.removesuffix("-sig") if encoding else "utf-8"))
        assert read(tmp_path / "list.csv", form("email", encoding=encoding)) == PEOPLE


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    for name in ("utf-99", "rot13", "hex", ""):
        with pytest.raises(InvalidInput, match="encoding"):
            read(CASES / "utf16le.txt", form(encoding=name))
    (tmp_path / "list.txt").write_bytes(b"\xff\n")
    with pytest.raises(InvalidInput, match="which is not ascii"):
        read(tmp_path / "list.txt", form(encoding="ascii"))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_are_told_by_their_first_bytes(tmp_path: Path, kind: str) -> None:
    """Whatever they are called; text of their name is refused, and so is one on a pipe or packed."""
    made = tmp_path / f"list.{kind}"
    if kind == "parquet":
        pl.DataFrame({"email": PEOPLE}).write_parquet(made)
    else:
        pl.DataFrame({"email": PEOPLE}).write_ipc(made)
    for name in ("list.csv", "list.txt", "list"):
        (tmp_path / name).write_bytes(made.read_bytes())
        assert read(tmp_path / name, EMAIL) == PEOPLE
    assert f"must be {kind}" in refusal(tmp_path / "list", form("email", "csv"))
    (tmp_path / "packed").write_bytes(gzip.compress(made.read_bytes()))
    assert f"{kind} packed" in refusal(tmp_path / "packed", EMAIL)
    assert f"{kind} on a pipe" in _from_pipe(tmp_path / "pipe", made.read_bytes(), EMAIL)
    made.write_bytes(LINES)
    assert "give the right one by --format" in refusal(made, EMAIL)
    assert read(made, form(file_format="lines")) == PEOPLE


def _from_pipe(path: Path, content: bytes, wanted: FileForm | None = None) -> str:
    """What is read from a pipe, joined, or what is said of it."""
    os.mkfifo(path)

    def write() -> None:
        try:
            with path.open("wb") as pipe:
                pipe.write(content)
        except BrokenPipeError:  # refused before it was read
            pass

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return "".join(f"{element}\n" for element in read(path, wanted))
    except InvalidInput as error:
        return error.message
    finally:
        writer.join()


@pytest.mark.parametrize("packing", PACKERS)
def test_pipes_are_read_like_files(tmp_path: Path, packing: str) -> None:
    """Unpacked, refused by kind, and a CSV file's column found."""
    assert _from_pipe(tmp_path / "packed", PACKERS[packing](LINES) * 2).encode() == LINES * 2
    assert "zip archive" in _from_pipe(tmp_path / "zip", _zip(LINES))
    assert _from_pipe(tmp_path / "plain", LINES).encode() == LINES
    assert _from_pipe(tmp_path / "csv", b"id,email\n1,a\n", EMAIL) == "a\n"


def test_lines_of_a_pipe_come_as_they_are_written(tmp_path: Path) -> None:
    """A line is not kept waiting for the next, nor the first for enough bytes to tell the kind of file."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "pipe").open("r+b", buffering=0) as pipe:
        pipe.write(b"a\n")
        elements = iter(read_files([str(tmp_path / "pipe")]))
        assert next(elements) == b"a"
        pipe.write(b"b\nc\n")
        assert [next(elements), next(elements)] == [b"b", b"c"]


# CSV


CSV_READ = {
    "line feeds in cells": ('id,email\n1,"a\nb"\n2,"c\r\nd"\n', ["a\nb", "c\r\nd"]),
    "doubled quotes": ('id,email\n1,"a""b"\n2,""""\n3,""\n', ['a"b', '"']),
    "delimiters in cells": ('"id","email"\n"1,2","a,b"\n', ["a,b"]),
    "spaces": ("id,email\n1, a \n", [" a "]),
    "a header with line feeds": ('"i\nd",email\n1,a\n', ["a"]),
    "CR LF": ("id,email\r\n1,a\r\n\r\n2,b\r\n", ["a", "b"]),
    "no last line feed": ("id,email\n1,a", ["a"]),
    "quoted last cell": ('id,email\n1,"a"', ["a"]),
    "first of the columns": ('email,id\n"a",1\nb,\n', ["a", "b"]),
    "a middle column": ("id,email,x\n1,a,\n2,b,\n", ["a", "b"]),
    "blank lines before the header": ("\n\nid,email\n1,a\n", ["a"]),
    "only a header": ("id,email\n", []),
    "nothing": ("", []),
}
CSV_REFUSED = {
    "text behind a quote": (
        'id,email\n1,"a"b\n',
        "text behind the quote in line 2 that closes the cell opened in line 2",
    ),
    "a quote within a cell": ('id,email\n1,a"b\n2,"c"\n', "has one inside of a cell in line 2"),
    "a space before a quote": ('id,email\n1, "a"\n', "inside of a cell in line 2"),
    "a quote closed lines later": ('id,email\n1,"a\n2,b\n3,"c"\n', "in line 4 that closes the cell opened in line 2"),
    "a quote never closed": ('id,email\n1,a\n2,"b\n', "opens one in line 3"),
    "a short row": ("id,email\n1,a\n2\n", "has 1 cells in line 3"),
    "a long row behind line feeds in cells": ('id,email\n1,"a\n\n"\n2,b,c\n', "has 3 cells in line 5"),
    "a blank cell of spaces": ("id,email\n   \n", "has 1 cells in line 2"),
    "line ends of old Macs": ("id,email\r1,a\r", "line 1 has a carriage return"),
    "no such column": ("id,mail\n1,a\n", "a name in the first row of .*not shown"),
}


@pytest.mark.parametrize("case", CSV_READ)
@pytest.mark.parametrize("block", [1, 3, 1 << 19])
def test_csv_is_read_as_it_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, block: int) -> None:
    """Wherever blocks begin."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    content, elements = CSV_READ[case]
    (tmp_path / "list.csv").write_bytes(content.encode())
    assert read(tmp_path / "list.csv", EMAIL) == elements


@pytest.mark.parametrize("case", CSV_REFUSED)
@pytest.mark.parametrize("block", [1, 3, 1 << 19])
def test_odd_csv_is_refused_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, block: int) -> None:
    """By the first odd line, wherever blocks begin."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    content, words = CSV_REFUSED[case]
    (tmp_path / "list.csv").write_bytes(content.encode())
    with pytest.raises(InvalidInput, match=words):
        read(tmp_path / "list.csv", EMAIL)


@pytest.mark.parametrize(
    ("column", "header", "found"),
    [
        ("mail", None, ["a", "b"]),
        ("mail", True, ["a", "b"]),
        ("2", None, ["mail", "a", "b"]),
        ("2", False, ["mail", "a", "b"]),
        ("2", True, ["a", "b"]),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_header_is_no_element(
    tmp_path: Path, column: str, header: bool | None, found: list[str], delimiter: str
) -> None:
    """By default there is one where the column is a name."""
    path, tally = tmp_path / "table.csv", Tally()
    path.write_text("id,mail\n1,a\n2,\n3,b\n".replace(",", delimiter))
    wanted = form(column, header=header, delimiter=None if delimiter == "," else delimiter)
    assert read(path, wanted, tally) == found
    assert tally == Tally(1, empty=1)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (form("0", "csv"), "from 1"),
        (form("00", "csv"), "from 1"),
        (form("9", "csv"), "from 1 to 2"),
        (form("٣", "csv"), "a name in the first row"),
        (form("²", "csv"), "a name in the first row"),
        (form("id", header=False), "a number from 1 with --no-header"),
        (form(file_format="csv"), "needed for a CSV file"),
        (form(file_format="lines", quotes=False), "quotes applies to CSV only"),
        (form(file_format="lines", header=True), "header applies to CSV only"),
        (form("id", "lines"), "column applies to tables only"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, wanted: FileForm, words: str) -> None:
    (tmp_path / "list").write_text("id,email\n1,a\n")
    with pytest.raises(InvalidInput, match=words):
        read(tmp_path / "list", wanted)


# Tables


def _arrow(path: Path, table: pa.Table, **options: Any) -> Path:
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)
    return path


VALUES = ["alice@example.com", None, "", "x" * 100, "bob", "bob", None, "müller"]
WANTED = [value for value in VALUES if value]
LAYOUTS = {
    "string": pa.array(VALUES),
    "large string": pa.array(VALUES, pa.large_string()),
    "string view": pa.array(VALUES, pa.string_view()),
    "binary": pa.array([value and value.encode() for value in VALUES]),
    "large binary": pa.array([value and value.encode() for value in VALUES], pa.large_binary()),
    "binary view": pa.array([value and value.encode() for value in VALUES], pa.binary_view()),
    "dictionary": pa.array(VALUES).dictionary_encode(),
    "dictionary of large": pa.array(VALUES, pa.large_string()).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, 4, None, 5], pa.uint8()), pa.array([VALUES[0], None, *VALUES[2:5], VALUES[7]])
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 6, 7, 8], pa.array([*VALUES[:5], *VALUES[6:]])),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_every_arrow_layout_of_text_is_read(tmp_path: Path, layout: str, compression: str | None) -> None:
    """From a file and from a stream; what is missing or empty is skipped and counted."""
    table = pa.table({"id": pa.array(range(len(VALUES))), "email": LAYOUTS[layout]})
    unified = table.unify_dictionaries()
    paths = [_arrow(tmp_path / "list.arrow", unified, compression=compression), tmp_path / "list.arrows"]
    with pa.ipc.new_stream(str(paths[1]), unified.schema) as writer:
        writer.write_table(unified, max_chunksize=3)
    for path in paths:
        tally = Tally()
        assert read(path, form("email"), tally) == WANTED
        assert tally == Tally(1, empty=3)


def test_rows_are_named_over_all_batches(tmp_path: Path) -> None:
    """Whatever the layout."""
    for layout, array in LAYOUTS.items():
        path = _arrow(tmp_path / f"{layout}.arrow", pa.table({"email": array}).unify_dictionaries())
        places = [
            block.origin.place(i)
            for block in read_files([str(path)], EMAIL).blocks()
            if block.origin
            for i in range(len(block))
        ]
        assert places == [f"{path}, row {row + 1}" for row, value in enumerate(VALUES) if value]


def test_uuids_of_every_writer_are_text(tmp_path: Path) -> None:
    """Said so by a count."""
    texts = [str(uuid.UUID(int=number)) for number in range(5)]
    listed = pl.DataFrame({"text": texts})
    duckdb.from_arrow(listed.to_arrow()).project("text::UUID AS email").write_parquet(str(tmp_path / "duck.parquet"))
    array = pa.array([bytes.fromhex(text.replace("-", "")) for text in texts], pa.binary(16)).cast(pa.uuid())
    pa.parquet.write_table(pa.table({"email": array}), tmp_path / "arrow.parquet")
    _arrow(tmp_path / "list.arrow", pa.table({"email": array}))
    for name in ("duck.parquet", "arrow.parquet", "list.arrow"):
        tally = Tally()
        assert read(tmp_path / name, EMAIL, tally) == texts
        assert tally.uuids == 5


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (pa.array([1, 2]), "int64"),
        (pa.array([1.5]), "double"),
        (pa.array([True]), "bool"),
        (pa.array([pd.Timestamp("2026-01-01")]), "timestamp[us]"),
        (pa.array([1]).cast(pa.decimal128(21, 2)), "decimal128(21, 2)"),
        (pa.array([["a"]]), "list"),
        (pa.array([{"a": "b"}]), "struct"),
        (pa.array([1, 1]).dictionary_encode(), "int64"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_other_types_are_refused_by_name(tmp_path: Path, array: pa.Array, name: str, suffix: str) -> None:
    """With what to do."""
    path = tmp_path / f"list.{suffix}"
    if suffix == "parquet":
        pa.parquet.write_table(pa.table({"email": array}), path)
    else:
        _arrow(path, pa.table({"email": array}))
    assert f"{name};" in refusal(path, EMAIL)


def test_a_column_of_nulls_has_no_elements(tmp_path: Path) -> None:
    tally = Tally()
    assert read(_arrow(tmp_path / "list.arrow", pa.table({"email": pa.nulls(4)})), EMAIL, tally) == []
    assert tally.empty == 4


def test_a_missing_column_is_refused_with_those_there(tmp_path: Path) -> None:
    path = _arrow(tmp_path / "list.arrow", pa.table({"mail": ["a"], "id": ["b"]}))
    with pytest.raises(InvalidInput, match="mail, id"):
        read(path, EMAIL)
    with pytest.raises(InvalidInput, match="column is needed"):
        read(path)


def test_a_dotted_name_is_not_taken_for_a_field(tmp_path: Path) -> None:
    """Parquet writes the path to a nested field with dots too."""
    columns = {"a.b": pa.array(["top"]), "l": pa.array([["x"]]), "a": pa.array([{"c": "x", "b": "nested"}])}
    for names in (list(columns), list(columns)[::-1]):
        pa.parquet.write_table(pa.table({name: columns[name] for name in names}), tmp_path / "list.parquet")
        assert read(tmp_path / "list.parquet", form("a.b")) == ["top"]


def test_the_page_about_inputs_has_the_limits() -> None:
    """As the code has them."""
    page = (Path(__file__).parents[2] / "docs" / "inputs.md").read_text()
    limits = {
        "an element": f"{MAX_ELEMENT_BYTES} bytes",
        "a line, or a row of CSV": f"{text.LONGEST_LINE >> 20} MiB",
        "memory that unpacking": f"{unpacking.MEMORY_LIMIT >> 20} MiB",
        "a page of a Parquet file": f"{tables.PAGE_LIMIT >> 20} MiB",
        "a packed record batch": f"{tables.MESSAGE_LIMIT >> 20} MiB",
        "a value in a dictionary": f"{columns.LONGEST_VALUE >> 10} KiB",
        "a token": f"{_system.SMALL_FILE_LIMIT >> 20} MiB",
    }
    for what, limit in limits.items():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {what}"))
        assert limit in row
