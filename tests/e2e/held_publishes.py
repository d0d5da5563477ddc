"""``veilset`` whose publishes of its first set wait as long as a file is there: ``held_publishes.py FILE ARGUMENTS``.

The file FILE.reached says that one waits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numpy import uint64
from numpy.typing import NDArray


def hold(file: Path) -> None:
    """Have them wait before they read what the set holds."""
    from veilset_server.state.runs import Runs

    read = Runs.sorted_chunks

    @contextmanager
    def held(self: Runs, set_id: int) -> Iterator[Iterator[NDArray[uint64]]]:
        while set_id == 1 and file.exists():
            file.with_suffix(".reached").touch()
            time.sleep(0.01)
        with read(self, set_id) as chunks:
            yield chunks

    Runs.sorted_chunks = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold(Path(sys.argv.pop(1)))
    from veilset.cli.main import main

    main()
