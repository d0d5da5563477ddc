"""``veilset`` with faults planted where elements are at hand, and their texts full of them: what an unforeseen error is.

A batch that holds `BREAK` breaks hashing; a vector of 8·i + 5 bits breaks perturbing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BREAK = b"break here"


def plant() -> None:
    """Put the faults in place."""
    from veilset.core.elements.hashing import digests
    from veilset.core.encodings.bloom import vectors
    from veilset.core.encodings.bloom.response import perturb
    from veilset_server.usecases import upload_session

    def broken_digests(elements: Sequence[bytes], *rest: Any) -> Any:
        if BREAK in elements:
            raise ValueError(f"cannot hash {elements!r}")
        return digests(elements, *rest)

    def broken_perturb(vector: Any, bits: int, *rest: Any) -> Any:
        if bits % 8 == 5:
            raise RuntimeError(f"cannot perturb {bytes(vector).hex()}, {int(vector.sum())} in all")
        return perturb(vector, bits, *rest)

    vars(upload_session).update(digests=broken_digests)
    vars(vectors).update(perturb=broken_perturb)


if __name__ == "__main__":
    from veilset.cli.main import main

    plant()
    main()
