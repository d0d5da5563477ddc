"""Elements from files by the block, in one buffer each: what `veilset._input.files.read_elements` gives one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import chain
from typing import cast

from veilset._input import files as inputs
from veilset._input.csv import AS_USUAL, CsvForm, Tally
from veilset._input.packed_columns import pack_arrow
from veilset.core.elements.packed import PackedElements, PackedStream, lay_out, pack_lines

BLOCK_BYTES = 1 << 19


def read_files(
    paths: Sequence[str],
    file_format: str | None = None,
    column: str | None = None,
    form: CsvForm = AS_USUAL,
    tally: Tally | None = None,
) -> Iterable[bytes] | Iterable[bytes | str]:
    """The elements of files, one after the other, in bounded memory: a PackedStream, unless one of them is CSV.

    tally: counts what is skipped. Raises InvalidInput, while they are read, for what `read_elements` refuses.
    """
    if "csv" in {inputs.chosen_format(path, file_format, column) for path in paths}:
        return chain.from_iterable(inputs.read_elements(path, file_format, column, form, tally) for path in paths)
    for path in paths:
        form.check_used(inputs.chosen_format(path, file_format, column))
    return PackedStream(lambda: (block for path in paths for block in read_blocks(path, file_format, column, tally)))


def read_blocks(
    path: str, file_format: str | None = None, column: str | None = None, tally: Tally | None = None
) -> Iterator[PackedElements]:
    """The elements of a file of lines, Parquet or Arrow, in blocks. Nulls, empty lines and cells are skipped, and counted."""
    tally = tally or Tally()
    chosen = inputs.chosen_format(path, file_format, column)
    tally.files += 1
    with inputs.reading(path):
        if chosen == "lines":
            with inputs.open_file(path, chosen) as file:
                yield from _read_lines(cast(BufferedReader, file), tally)
            return
        for cells in inputs.table_columns(path, chosen, column):
            tally.skipped += cells.null_count
            packed = pack_arrow(cells.drop_null())
            if packed is None:  # of another type than text, or of missing values only
                present = cells.drop_null().to_pylist()
                packed = lay_out([_encoded(cell) for cell in inputs.cells(present, column or "", tally)])
            yield _without_empty(packed, tally)


def _without_empty(packed: PackedElements, tally: Tally) -> PackedElements:
    kept = packed.without_empty()
    tally.skipped += len(packed) - len(kept)
    return kept


def _read_lines(file: BufferedReader, tally: Tally) -> Iterator[PackedElements]:
    rest, first = b"", True
    while True:
        read = file.read1(BLOCK_BYTES)  # what is there: whoever writes to a pipe line by line is not waited for
        end = read.rfind(b"\n") + 1
        if read and not end:  # a line that is not yet over
            rest += read
            if len(rest) >= inputs.LONGEST_LINE:
                raise inputs.line_too_long()
            continue
        block, rest = rest + (read[:end] if read else b""), read[end:]
        if block:
            yield _without_empty(pack_lines(block.removeprefix(inputs.BOM) if first else block), tally)
            first = False
        if not read:
            return


def _encoded(cell: bytes | str) -> bytes:
    return cell.encode() if isinstance(cell, str) else cell
