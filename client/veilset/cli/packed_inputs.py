"""Elements from files by the block, in one buffer each: what `veilset.cli.inputs.read_elements` gives one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import chain
from typing import cast

from veilset.cli import inputs
from veilset.core.packed import PackedElements, PackedStream, lay_out, pack_lines
from veilset.core.packed_columns import pack_arrow

BLOCK_BYTES = 1 << 22


def read_files(
    paths: Sequence[str], file_format: str | None = None, column: str | None = None
) -> Iterable[bytes] | Iterable[bytes | str]:
    """The elements of files, one after the other, in bounded memory: a PackedStream, unless one of them is CSV.

    Raises InvalidInput, while they are read, for what `read_elements` refuses.
    """
    if "csv" in {inputs.chosen_format(path, file_format, column) for path in paths}:
        return chain.from_iterable(inputs.read_elements(path, file_format, column) for path in paths)
    return PackedStream(lambda: (block for path in paths for block in read_blocks(path, file_format, column)))


def read_blocks(path: str, file_format: str | None = None, column: str | None = None) -> Iterator[PackedElements]:
    """The elements of a file of lines, Parquet or Arrow, in blocks. Empty lines and cells are skipped."""
    chosen = inputs.chosen_format(path, file_format, column)
    with inputs.reading(path):
        if chosen == "lines":
            with inputs.open_file(path) as file:
                yield from _read_lines(cast(BufferedReader, file))
            return
        for cells in inputs.table_columns(path, chosen, column):
            packed = pack_arrow(cells.drop_null())
            if packed is None:  # of another type than text, or of missing values only
                packed = lay_out([_encoded(cell) for cell in inputs.cells(cells.to_pylist(), column or "")])
            yield packed.without_empty()


def _read_lines(file: BufferedReader) -> Iterator[PackedElements]:
    rest, first = b"", True
    while True:
        read = file.read1(BLOCK_BYTES)  # what is there: whoever writes to a pipe line by line is not waited for
        end = read.rfind(b"\n") + 1
        if read and not end:  # a line longer than a block
            rest += read
            continue
        block, rest = rest + (read[:end] if read else b""), read[end:]
        if block:
            yield _pack(block.removeprefix(inputs.BOM) if first else block)
            first = False
        if not read:
            return


def _pack(block: bytes) -> PackedElements:
    return pack_lines(block).without_empty()


def _encoded(cell: bytes | str) -> bytes:
    return cell.encode() if isinstance(cell, str) else cell
