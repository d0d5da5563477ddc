"""``veilset`` whose merges of elements wait as long as a file is there: ``held_merges.py FILE ARGUMENTS``.

The file FILE.reached says that one waits.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any


def hold(file: Path) -> None:
    """Have them wait."""
    from veilset_server.usecases.merge_work import ElementWork

    merge = ElementWork.or_into

    def held(self: ElementWork, vector: Any) -> int:
        while file.exists():
            file.with_suffix(".reached").touch()
            time.sleep(0.01)
        return merge(self, vector)

    ElementWork.or_into = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold(Path(sys.argv.pop(1)))
    from veilset.cli.main import main

    main()
