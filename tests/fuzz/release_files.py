"""Release files and headers from anywhere: refused by name, or answered from.

The first byte says which: 0, a file as `veilset.open` reads it; else a header that a key did sign, which is what a store
can offer whose operator also holds a signing key.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from harness.releases import release_bytes
from harness.shapes import FilterParameters
from veilset._reader.reader import open_view
from veilset._reader.sources import read_manifest
from veilset.core.encodings.decoder import make_decoder
from veilset.core.params import HashScheme, Normalization
from veilset.core.privacy.statement import make_statement
from veilset.core.release.header import decode_header
from veilset.errors import InvalidInput, NotFound, PoorUtility, ReleaseRejected
from veilset.v1 import release_pb2

MODULES = ("veilset.core.release.signing", "veilset._report.plots")


def seeds() -> Iterator[bytes]:
    """Whole files of several shapes, one cut short, and their headers."""
    shapes = (
        FilterParameters(64, 1),
        FilterParameters(1003, 3, seed=7),
        FilterParameters(4096, 2, HashScheme.BLAKE2B, seed=1, key_check="0123456789abcdef"),
    )
    for shape in shapes:
        key = bytes(16) if shape.scheme is HashScheme.BLAKE2B else None
        file = release_bytes([b"a", b"b"], shape, 2.0, normalization=Normalization.TRIM_CASEFOLD, key=key)
        yield b"\0" + file
        yield b"\0" + file[: len(file) // 2]
        yield b"\1" + release_pb2.SignedHeader.FromString(read_manifest(io.BytesIO(file))).header


def one_input(data: bytes) -> None:
    """Open or decode it, ask it, and let it tell what it promises."""
    try:
        if data[:1] == b"\0":
            open_view(data[1:]).contains_many([b"a", b"b"])
        else:
            header = decode_header(data[1:])
            str(make_statement(header))
            make_decoder(header.encoding.expected_law(header.capacity))
    except (ReleaseRejected, InvalidInput, NotFound, PoorUtility):
        pass
