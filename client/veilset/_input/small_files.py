"""Small files that users name: a token, a secret, a URL, certificates. Whatever the name leads to, little of it is read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

SMALL_FILE_LIMIT = 1 << 20


def read_small(path: str | os.PathLike[str]) -> bytes:
    """All of a file of at most 1 MiB, or a pipe's content. Raises OSError, for what is longer too."""
    with Path(path).open("rb") as file:
        content = file.read(SMALL_FILE_LIMIT + 1)
    if len(content) > SMALL_FILE_LIMIT:
        raise OSError(errno.EFBIG, f"longer than {SMALL_FILE_LIMIT >> 20} MiB", str(path))
    return content
