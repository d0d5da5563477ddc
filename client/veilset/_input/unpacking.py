"""The kind of a file, from its first bytes: text, compressed text (unpacked here), a table, or a kind to refuse by name.

The same for files, pipes and standard input. Memory is bounded, whatever a compressed file asks for.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from veilset.errors import InvalidInput, must_be

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MEMORY_LIMIT = 128 << 20
"""Most memory, in bytes, that unpacking may take; xz and zstd files can ask for far more."""

_HEAD = 16
_PACKED = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_TABLES = {"parquet": (b"PAR1\x15", b"PARE"), "arrow": (b"ARROW1\x00\x00",), "arrow stream": (b"\xff\xff\xff\xff",)}
_UTF = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_UNPACK = "unpack it and give the file inside"
_REFUSED = {
    b"PK\x03\x04": ("a zip archive (as xlsx and ods files are)", f"{_UNPACK}, or save the sheet as CSV"),
    b"PK\x05\x06": ("an empty zip archive", _UNPACK),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an Excel file of the old kind", "save the sheet as CSV"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": ("a rar archive", _UNPACK),
    b"\x04\x22\x4d\x18": ("an lz4 file", _UNPACK),
    b"\x1f\x9d": ("a compress file (.Z)", _UNPACK),
    b"SQLite format 3\x00": ("an SQLite database", "export the column as CSV"),
    b"Obj\x01": ("an Avro file", "export the column as CSV or Parquet"),
    b"FEA1": ("a Feather file of version 1", "write it as version 2, CSV or Parquet"),
    b"\x89HDF\r\n\x1a\n": ("an HDF5 file", "export the column as CSV or Parquet"),
    b"%PDF-": ("a PDF file", "export the list as text"),
}


@dataclass(frozen=True, slots=True)
class Opened:
    """An input that is open. kind: "text", "parquet", "arrow" or "arrow stream". file: its bytes, unpacked; None for a table.
    live: what arrives is to be read as it comes, as from a pipe."""

    name: str
    kind: str
    file: BinaryIO | None
    live: bool


@contextmanager
def opened(path: str, encoding: str | None = None) -> Iterator[Opened]:
    """Open a file, a pipe, or standard input (-), unpacked; encoding: of its text, where that is not UTF-8.

    Raises InvalidInput, by name, for what cannot be read and what is neither text nor a table that is read here.
    """
    try:
        with _open(path) as raw:
            name = "standard input" if path == "-" else path
            regular = path != "-" and Path(path).is_file()
            head, file = _peek(raw)
            packing = next((kind for kind, magic in _PACKED.items() if head.startswith(magic)), "")
            if packing == "bzip2" and not any(begin.startswith(head[4:10]) for begin in _BZIP2_BLOCKS):
                packing = ""  # text that begins like one
            if packing:
                head, file = _peek(_unpack(file, packing))
            kind = _kind(head, name, packing, regular, encoding)
            yield Opened(name, kind, file if kind == "text" else None, live=not regular and not packing)
    except lzma.LZMAError as error:
        limited = "limit" in str(error).lower()
        raise must_be("file", _needs_less_memory(path) if limited else f"a whole xz file: {path}") from None
    except zstd.ZstdError as error:
        limited = "memory" in str(error).lower()
        raise must_be("file", _needs_less_memory(path) if limited else f"a whole zstd file: {path}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise must_be("file", f"a whole file, not a cut or damaged one: {path} ({_reason(error)})") from None
    except OSError as error:
        raise InvalidInput("file", f"file {path} cannot be read: {error.strerror or _reason(error)}") from None


def _needs_less_memory(path: str) -> str:
    return f"one that is unpacked in {MEMORY_LIMIT >> 20} MiB of memory: {path} asks for more; {_UNPACK}"


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    if path != "-":
        with Path(path).open("rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise InvalidInput("file", "file - means standard input, which is closed; give the path of a file")
    try:
        descriptor = sys.stdin.fileno()
    except (ValueError, OSError):  # replaced, as tests of the command line do
        yield cast(BinaryIO, sys.stdin.buffer)
        return
    if sys.stdin.isatty():
        print("veilset: reading elements from the terminal; end with Ctrl-D", file=sys.stderr)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        yield file


def _peek(file: Any) -> tuple[bytes, BinaryIO]:
    """The first bytes, and a file that still has them. Does not wait for more than a first line."""
    head = b""
    while len(head) < _HEAD and b"\n" not in head:
        read = file.read1(_HEAD)
        if not read:
            break
        head += read
    return head, cast(BinaryIO, io.BufferedReader(_Joined(head, file), 1 << 16))


def _kind(head: bytes, name: str, packing: str, regular: bool, encoding: str | None) -> str:
    within = f"{name} is {packing}, and inside of it is " if packing else f"{name} is "
    for magic, (what, remedy) in _REFUSED.items():
        if head.startswith(magic):
            raise must_be("file", f"text, Parquet or Arrow: {within}{what}; {remedy}")
    if packing and any(head.startswith(magic) for magic in _PACKED.values() if len(magic) != 3):
        raise must_be("file", f"text, compressed once: {within}compressed again; {_UNPACK}")
    for kind, magics in _TABLES.items():
        if head.startswith(magics):
            if packing or not regular:
                where = "packed" if packing else "on a pipe"
                raise must_be("file", f"a file of its own where it is Parquet or Arrow: {name} is {kind} {where}")
            return kind
    for mark, found in _UTF.items() if encoding is None else ():
        if head.startswith(mark):
            raise must_be("encoding", f"{found} for {name}, which says so by its byte order mark (--encoding {found})")
    return "text"


def _unpack(file: BinaryIO, packing: str) -> BinaryIO:
    if packing == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    window = MEMORY_LIMIT.bit_length() - 1
    makers: dict[str, Callable[[], Any]] = {
        "bzip2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY_LIMIT),
        "zstd": lambda: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window}),
    }
    return cast(BinaryIO, io.BufferedReader(_Unpacked(file, makers[packing], _PACKED[packing]), 1 << 16))


class _Joined(io.RawIOBase):
    """Bytes that were read already, followed by the rest of their file."""

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._head[: len(buffer)] or self._rest.read1(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(read)] = read
        return len(read)


class _Unpacked(io.RawIOBase):
    """The content of concatenated compressed streams, as `cat` makes them; padding zeros between them are skipped."""

    def __init__(self, file: BinaryIO, make: Callable[[], Any], magic: bytes) -> None:
        self._file, self._make, self._magic = file, make, magic
        self._stream = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._stream.eof:
                given = self._next_stream()
                if not given:
                    return 0
            else:
                given = self._file.read(1 << 16) if self._stream.needs_input else b""
                if not given and self._stream.needs_input:
                    raise EOFError("it ends in the middle")
            read = self._stream.decompress(given, len(buffer))
            if read:
                buffer[: len(read)] = read
                return len(read)

    def _next_stream(self) -> bytes:
        """The first bytes of the next stream; empty at the end."""
        rest = self._stream.unused_data.lstrip(b"\0")
        while len(rest) < len(self._magic) and (more := self._file.read(1 << 16)):
            rest = (rest + more).lstrip(b"\0")
        if rest and not rest.startswith(self._magic):
            raise EOFError("something else follows its end")
        if rest:
            self._stream = self._make()
        return bytes(rest)
