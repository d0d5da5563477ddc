"""Files of elements in every format that the command line reads, by both its readers, and spec files.

The first byte says the format. Arrow and Parquet files are pyarrow's to decode: a few inputs of theirs go through too.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet

from veilset._input.files import FileForm, read_files
from veilset._service.spec import Spec
from veilset.core.elements.normalization import normalize
from veilset.core.params import Normalization
from veilset.errors import InvalidInput

MODULES = ("veilset.core.elements.hashing",)

_FORMATS = ("lines", "csv", "parquet", "arrow")
_PROFILES = list(Normalization)
_PATH = Path(f"/proc/self/fd/{os.memfd_create('input')}")
_MOST = 2000


def seeds() -> Iterator[bytes]:
    """A small file of each format, plain and gzip, and a spec."""
    texts = {
        "lines": b"\xef\xbb\xbfalice@example.com\r\n\n B\xc3\xb6b@example.com\nlast",
        "csv": b'id,email\r\n1,"a,b@example.com"\r\n2,\r\n3,c@example.com\r\n',
    }
    table = arrow.table({"email": ["a@example.com", None, "", "b@example.com"]})
    parquet = io.BytesIO()
    arrow.parquet.write_table(table, parquet)
    texts["parquet"] = parquet.getvalue()
    sink = io.BytesIO()
    with arrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    texts["arrow"] = sink.getvalue()
    for number, name in enumerate(_FORMATS):
        for profile in range(len(_PROFILES)):
            yield bytes([number, profile]) + texts[name]
        yield bytes([number, 0]) + gzip.compress(texts[name])
    yield bytes([len(_FORMATS), 0]) + str(Spec.plan(size=1000, epsilon=2, adjacency="add-remove")).encode()


def one_input(data: bytes) -> None:
    """Read it as a file; what it holds goes through a normalisation."""
    if len(data) < 2:
        return
    kind, profile, content = data[0] % (len(_FORMATS) + 1), _PROFILES[data[1] % len(_PROFILES)], data[2:]
    try:
        if kind == len(_FORMATS):
            Spec.parse(content.decode("utf-8", "replace"))
            return
        with _PATH.open("wb") as file:
            file.write(content)
        column = None if kind == 0 else "email"
        normalize(list(islice(read_files([str(_PATH)], FileForm(_FORMATS[kind], column)), _MOST)), profile)
    except InvalidInput:
        pass
