"""Text files: UTF-8 or another encoding, in blocks of bounded size; what is not text is refused, with its line.

A byte order mark is allowed at the very beginning only. A carriage return is allowed directly before a line feed, where both end
a line, and in a quoted cell of a CSV file; elsewhere the file has other line ends. A NUL byte is not text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset._input.unpacking import Opened
from veilset.core.elements.packed import Origin, PackedElements, find_byte, pack_lines
from veilset.errors import InvalidInput, must_be

BLOCK_BYTES = 1 << 19
LONGEST_LINE = 1 << 20
"""The longest line or row that is accepted, in bytes; far longer than any element."""
LINE_FEED, CARRIAGE_RETURN = 10, 13
_MARK = "\ufeff".encode()


@dataclass(slots=True)
class Tally:
    """Counts over all files. files: opened. empty: empty lines, rows and cells and missing values, which are skipped. null_like:
    elements such as NULL, which are not skipped. uuids: values that became text."""

    files: int = 0
    empty: int = 0
    null_like: int = 0
    uuids: int = 0


def check_encoding(encoding: str | None) -> None:
    """Raises InvalidInput for what is no encoding of text."""
    try:
        if encoding is not None:
            "a".encode(encoding).decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        raise must_be("encoding", "one that Python knows, such as utf-16 or latin-1", encoding) from None


def read_chunks(source: Opened, encoding: str | None) -> Iterator[bytes]:
    """The text as UTF-8 in pieces of any size, without a byte order mark at its beginning."""
    assert source.file is not None
    read = source.file.read1 if source.live else source.file.read  # type: ignore[attr-defined]
    decode = codecs.getincrementaldecoder(encoding)().decode if encoding is not None else None
    first = True
    while True:
        chunk: bytes = read(BLOCK_BYTES)
        ended = not chunk
        if decode is not None:
            try:
                chunk = decode(chunk, final=ended).encode()
            except UnicodeError:
                raise InvalidInput(
                    "encoding",
                    f"encoding does not fit the text in {source.name}, which is not {encoding}; give another",
                ) from None
        if chunk:
            yield chunk.removeprefix(_MARK) if first else chunk
            first = False
        if ended:
            return


def read_lines(source: Opened, encoding: str | None, tally: Tally) -> Iterator[PackedElements]:
    """The lines that are not empty, in blocks. Raises InvalidInput."""
    number = 1
    for block in _whole_lines(source, encoding):
        check_text(block, source.name, number)
        lines = pack_lines(block)
        if b"\r" in block:
            check_line_ends(lines.data, find_byte(lines.data, CARRIAGE_RETURN), source.name, number)
        numbers = np.arange(number, number + len(lines))
        located = PackedElements(lines.data, lines.starts, lines.ends, Origin(source.name, "line", numbers))
        kept = located.without_empty()
        tally.empty += len(lines) - len(kept)
        number += len(lines)
        yield kept


def _whole_lines(source: Opened, encoding: str | None) -> Iterator[bytes]:
    rest, number = b"", 1
    for chunk in read_chunks(source, encoding):
        end = chunk.rfind(b"\n") + 1
        block, rest = (rest + chunk[:end], chunk[end:]) if end else (b"", rest + chunk)
        if block:
            yield block
            number += block.count(b"\n")
        if len(rest) > LONGEST_LINE:
            check_text(rest[:LONGEST_LINE], source.name, number, whole=False)
            raise too_long(source.name, number, "line")
    if rest:
        yield rest


def too_long(name: str, line: int, what: str) -> InvalidInput:
    """The error for a line or row that is too long."""
    return InvalidInput("file", f"file {name} has a {what} of more than {LONGEST_LINE >> 20} MiB in line {line}")


def line_at(data: NDArray[np.uint8], position: int, first: int) -> int:
    """The number of the line that byte ``position`` is in, where the data begin in line ``first``."""
    return first + int(np.count_nonzero(data[:position] == LINE_FEED))


def check_text(block: bytes, name: str, first: int, *, whole: bool = True) -> None:
    """Raises InvalidInput, naming the line, unless it is UTF-8 without NUL bytes and byte order marks.

    first: number of its first line. whole: whether it ends where a character ends.
    """
    data = np.frombuffer(block, dtype=np.uint8)
    if (position := block.find(b"\0")) >= 0:
        if wide := _wide_encoding(data[: 1 << 12]):
            raise InvalidInput("encoding", f"file {name} looks like {wide}; give --encoding {wide}")
        if block[257:262] == b"ustar":
            raise InvalidInput("file", f"file {name} is a tar archive; unpack it and give the file inside")
        raise InvalidInput(
            "file", f"file {name} is not text: it has a NUL byte in line {line_at(data, position, first)}"
        )
    if block.isascii():
        return
    if (position := block.find(_MARK)) >= 0:
        where = f"{name}, line {line_at(data, position, first)}"
        raise InvalidInput("file", f"file has a byte order mark (U+FEFF) inside its text: {where}; remove it")
    try:
        block.decode()
    except UnicodeDecodeError as error:
        if whole or error.end < len(block):
            where = f"{name} is not in line {line_at(data, error.start, first)}"
            raise InvalidInput(
                "file", f"file is not UTF-8 text: {where}; --encoding names another, such as latin-1"
            ) from None


def _wide_encoding(sample: NDArray[np.uint8]) -> str:
    """UTF-16 or UTF-32 where NUL bytes stand as they do in Latin text; empty otherwise."""
    for name, width, place in (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1)):
        zeros = sample[: len(sample) // width * width].reshape(-1, width) == 0
        if len(zeros) and not zeros[:, place].any() and np.delete(zeros, place, axis=1).mean() > 0.8:
            return name
    return ""


def check_line_ends(data: NDArray[np.uint8], returns: NDArray[np.int64], name: str, first: int) -> None:
    """Raises InvalidInput, naming the line, for a carriage return that no line feed follows. returns: where those are."""
    followed = data[np.minimum(returns + 1, len(data) - 1)] == LINE_FEED
    if followed.all():
        return
    position = int(returns[~followed][0])
    where = f"{name}, line {line_at(data, position, first)}"
    if data[position : position + 3].tolist() == [CARRIAGE_RETURN, CARRIAGE_RETURN, LINE_FEED]:
        what, remedy = "ends in CR CR LF", "tr -d '\\r'"
    else:
        what, remedy = "has a carriage return (CR) that is not before a line feed", "tr '\\r' '\\n'"
    raise InvalidInput(
        "file", f"file {where} {what}; lines end in LF or CR LF, so convert it, for instance by {remedy}"
    )
