"""One column of a CSV file: its cells in blocks, by strict quoting, with the line of each.

Quotes surround whole cells and are doubled within them; every row has as many cells as the first. Then a byte is inside quotes if
and only if an odd number of quotes is before it, so numpy finds rows and cells in whole blocks, about as fast as pyarrow.csv and
polars (66 ns a row against 54 and 59). These two cannot be used: both accept a file that ends inside a quoted cell, and neither
gives the line of a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veilset._input import text
from veilset._input.text import CARRIAGE_RETURN, LINE_FEED, LONGEST_LINE, Tally
from veilset._input.unpacking import Opened
from veilset.core.elements.packed import Origin, PackedElements, find_byte
from veilset.errors import InvalidInput, must_be

_QUOTE = 34
_UNQUOTED = "for a file without quoting give --no-quotes"

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How CSV files are laid out. header: whether the first row is one; None: if the column is a name. delimiter: one ASCII
    character; None: a tab in a .tsv file, else a comma. quotes: whether quotes have a meaning."""

    header: bool | None = None
    delimiter: str | None = None
    quotes: bool = True


def read_cells(
    source: Opened, column: str | None, form: CsvForm, delimiter: str, encoding: str | None, tally: Tally
) -> Iterator[PackedElements]:
    """The column's cells that are not empty. Raises InvalidInput for a missing column or a broken file, with the line."""
    cells = _Cells(source.name, _asked(column, form.header), ord(delimiter), form.quotes, tally)
    rest = b""
    for chunk in chain(text.read_chunks(source, encoding), (b"",)):
        block, rest = cells.cut(rest + chunk, ended=not chunk)
        if block:
            yield cells.read(block)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A column: its name, or its number from 0; and whether the first row is a header."""

    column: str | int
    header: bool


def _asked(column: str | None, header: bool | None) -> _Asked:
    if column is None:
        raise InvalidInput("column", "column is needed for a CSV file: give a name from its header, or a number from 1")
    if not (column.isascii() and column.isdigit()):
        if header is False:
            raise must_be("column", "a number from 1 with --no-header", column)
        return _Asked(column, header=True)
    if int(column) < 1:
        raise must_be("column", "a name from the first row, or a number from 1", column)
    return _Asked(int(column) - 1, bool(header))


class _Cells:
    """Reads the column from blocks of whole rows."""

    def __init__(self, name: str, asked: _Asked, delimiter: int, quoting: bool, tally: Tally) -> None:
        self._name, self._asked, self._delimiter, self._quoting, self._tally = name, asked, delimiter, quoting, tally
        self._line = 1
        self._width = 0  # cells of a row, once the first is known
        self._index = 0

    def cut(self, held: bytes, *, ended: bool) -> tuple[bytes, bytes]:
        """The whole rows of what is held, and the rest. Raises InvalidInput where a row is too long."""
        if ended:
            return held, b""
        end = held.rfind(b"\n") + 1
        if self._quoting and held.count(b'"', 0, end) % 2:  # that line feed is inside of quotes
            data = np.frombuffer(held, dtype=np.uint8)
            feeds = _outside(find_byte(data, _QUOTE))(find_byte(data, LINE_FEED))
            end = int(feeds[-1]) + 1 if len(feeds) else 0
        if len(held) - end > LONGEST_LINE:
            data = np.frombuffer(held, dtype=np.uint8)
            if self._quoting:
                begun = data[: end + LONGEST_LINE]
                self._check_quotes(begun, find_byte(begun, _QUOTE), f"not closed within {LONGEST_LINE >> 20} MiB")
            raise text.too_long(self._name, text.line_at(data, end, self._line), "row")
        return held[:end], held[end:]

    def read(self, block: bytes) -> PackedElements:
        """The column's cells in whole rows."""
        text.check_text(block, self._name, self._line)
        if not block.endswith(b"\n"):  # the last row of a file may have none
            block += b"\n"
        data = np.frombuffer(block, dtype=np.uint8)
        outside: Callable[[Positions], Positions] = _everything
        if self._quoting and b'"' in block:
            quotes = find_byte(data, _QUOTE)
            self._check_quotes(data, quotes)
            outside = _outside(quotes)
        if b"\r" in block:
            returns = outside(find_byte(data, CARRIAGE_RETURN))
            text.check_line_ends(data, returns, self._name, self._line)
        every_feed = find_byte(data, LINE_FEED)
        feeds = outside(every_feed)
        parts = outside(find_byte(data, self._delimiter))
        starts = np.concatenate(([0], feeds[:-1] + 1))
        ends = feeds - ((feeds > starts) & (data[feeds - 1] == CARRIAGE_RETURN)) if b"\r" in block else feeds
        lines = np.arange(len(feeds)) if len(feeds) == len(every_feed) else np.searchsorted(every_feed, starts)
        lines += self._line
        self._line += len(every_feed)

        filled = ends > starts
        if not filled.all():
            self._tally.empty += int(len(filled) - filled.sum())
            starts, ends, lines = starts[filled], ends[filled], lines[filled]
        first = 0
        if not self._width and len(starts):
            self._width = int(np.searchsorted(parts, ends[0])) + 1
            first = self._begin(block[starts[0] : ends[0]])
        by_row = self._by_row(parts, starts, ends, lines)
        cell_starts = by_row[:, self._index - 1] + 1 if self._index else starts
        cell_ends = by_row[:, self._index] if self._index < self._width - 1 else ends
        cells = PackedElements(data, cell_starts, cell_ends, Origin(self._name, "line", lines)).select(
            slice(first, None)
        )
        if outside is not _everything:
            cells = _unquoted(cells, doubled=b'""' in block)
        kept = cells.without_empty()
        self._tally.empty += len(cells) - len(kept)
        return kept

    def _by_row(self, parts: Positions, starts: Positions, ends: Positions, lines: Positions) -> Positions:
        """The delimiters of each row, (rows, width - 1). Raises InvalidInput unless every row has as many."""
        each = max(self._width - 1, 0)
        if len(parts) == len(starts) * each:
            by_row = parts.reshape(len(starts), each)
            if not by_row.size or ((by_row[:, 0] >= starts).all() and (by_row[:, -1] < ends).all()):
                return by_row
        cells = np.searchsorted(parts, ends) - np.searchsorted(parts, starts) + 1
        row = int(np.flatnonzero(cells != self._width)[0])
        counts = f"{cells[row]} cells in line {lines[row]} and {self._width} in its first row"
        raise InvalidInput("file", f"file {self._name} has {counts}; every row has to have as many cells")

    def _begin(self, row: bytes) -> int:
        """Find the column by the first row; returns the number of header rows, 0 or 1."""
        asked = self._asked
        if isinstance(asked.column, int):
            if asked.column >= self._width:
                raise must_be("column", f"a number from 1 to {self._width} for {self._name}", asked.column + 1)
            self._index = asked.column
            return int(asked.header)
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self._quoting else csv.QUOTE_NONE
        first = io.StringIO(row.decode(), newline="")
        reader = csv.reader(first, delimiter=chr(self._delimiter), quoting=quoting)
        self._index = find_column(next(reader), asked.column, self._name, shown=False)
        return 1

    def _check_quotes(self, data: NDArray[np.uint8], quotes: Positions, unclosed: str = "never closed") -> None:
        """Raise InvalidInput unless each quote opens or closes a whole cell, or is doubled inside one.

        unclosed: how the message describes one that is still open at the end.
        """
        if not len(quotes):
            return
        opening, closing = quotes[::2], quotes[1::2]
        before, behind = data[opening - 1], data[np.minimum(closing + 1, len(data) - 1)]
        if opening[0] == 0:
            before[0] = LINE_FEED
        if len(closing) and closing[-1] == len(data) - 1:
            behind[-1] = LINE_FEED
        allowed = np.zeros(256, dtype=np.bool_)
        allowed[[self._delimiter, LINE_FEED, _QUOTE]] = True
        stray = opening[~allowed[before]]
        allowed[CARRIAGE_RETURN] = True
        early = np.flatnonzero(~allowed[behind])
        if len(stray) and not (len(early) and closing[early[0]] < stray[0]):
            line = text.line_at(data, int(stray[0]), self._line)
            what = f"has one inside of a cell in line {line}"
        elif len(early):
            opened, line = (text.line_at(data, int(at[early[0]]), self._line) for at in (opening, closing))
            what = f"has text behind the quote in line {line} that closes the cell opened in line {opened}"
        elif len(quotes) % 2:
            what = f"opens one in line {text.line_at(data, int(quotes[-1]), self._line)} that is {unclosed}"
        else:
            return
        raise InvalidInput("file", f"file {self._name} {what}; {_UNQUOTED}")


def find_column(names: list[str], column: str, file: str, *, shown: bool) -> int:
    """Where the one column of that name is. Raises InvalidInput where there is none, or several."""
    places = [place for place, name in enumerate(names) if name == column]
    if len(places) > 1:
        listed = " and ".join(str(place + 1) for place in places)
        raise InvalidInput("column", f"column {column!r} is ambiguous: in {file}, columns {listed} have it; rename one")
    if not places:
        known = f"one of those of {file}: " + ", ".join(names)
        hidden = f"a name in the first row of {file}, which is not shown: without a header it is data; --delimiter parts cells"
        raise must_be("column", known if shown else hidden, column)
    return places[0]


def _everything(positions: Positions) -> Positions:
    return positions


def _outside(quotes: Positions) -> Callable[[Positions], Positions]:
    """A function that keeps the positions that are not inside quotes."""
    return lambda positions: positions[np.searchsorted(quotes, positions) & 1 == 0]


def _unquoted(cells: PackedElements, *, doubled: bool) -> PackedElements:
    """The cells without the quotes around them. doubled: whether there may be doubled ones inside, which become single."""
    data, starts, ends = cells.data, cells.starts, cells.ends
    quoted = (ends > starts) & (data[np.minimum(starts, len(data) - 1)] == _QUOTE)
    starts, ends = starts + quoted, ends - quoted
    if doubled:
        quotes = find_byte(data, _QUOTE)
        rewritten = np.flatnonzero(np.searchsorted(quotes, ends) > np.searchsorted(quotes, starts))
        written = [data[starts[i] : ends[i]].tobytes().replace(b'""', b'"') for i in rewritten]
        lengths = np.fromiter(map(len, written), dtype=np.int64, count=len(written))
        ends[rewritten] = len(data) + np.cumsum(lengths)
        starts[rewritten] = ends[rewritten] - lengths
        data = np.concatenate((data, np.frombuffer(b"".join(written), dtype=np.uint8)))
    return PackedElements(data, starts, ends, cells.origin)
