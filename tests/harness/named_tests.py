"""Documents name the tests that hold them to their word."""

from __future__ import annotations

import re
from collections.abc import Iterator


def named_tests(text: str) -> Iterator[tuple[str, str]]:
    """(file, test) of every `file::test`; a `::test` without a file is in the file named before it."""
    path = ""
    for found, name in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", text):
        path = found or path
        yield path, name
