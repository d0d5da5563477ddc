"""``veilset`` with the toy encoding in its list."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

    from toy_encoding.parameters import CellParameters
    from veilset.core.encodings import ENCODINGS

    ENCODINGS[CellParameters.encoding] = CellParameters
    from veilset.cli.main import main

    main()
