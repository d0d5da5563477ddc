"""A producer in a process of its own, for `benchmarks.growing`: uploads its list into each set that it reads the name of.

Run as ``python -m benchmarks.producer ADDRESS ELEMENTS NUMBER``; says "done" when it is ready and after each upload.
"""

from __future__ import annotations

import sys

import veilset
from veilset.core import compiled


def main() -> None:
    """Until standard input ends."""
    address, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    elements = [f"producer{number}.element{i}@example.com" for i in range(count)]
    compiled.load()
    with veilset.connect(address) as service:
        print("done", flush=True)
        for line in sys.stdin:
            service.add(line.strip(), elements)
            print("done", flush=True)


if __name__ == "__main__":
    main()
