"""``veilset`` that gets a signal while it still imports its parts: ``signalled_early.py NUMBER ARGUMENTS``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

MODULE = "veilset_server.app"
"""The last and longest import of a start."""


class Finder(MetaPathFinder):
    """Finds nothing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == MODULE:
            os.kill(os.getpid(), int(NUMBER))


if __name__ == "__main__":
    NUMBER = sys.argv.pop(1)
    sys.meta_path.insert(0, Finder())
    from veilset.cli.main import main

    main()
