"""Whether the bits of two releases mean the same: equal elements set equal bits in both, under noise of their own."""

from __future__ import annotations

from veilset.core.release import ReleaseHeader
from veilset.errors import InvalidInput, NotComparable


def check_comparable(left: ReleaseHeader, right: ReleaseHeader) -> None:
    """Raise NotComparable, with what differs and each side's value, unless bits, hashes, scheme, seed and normalisation agree.

    Raise InvalidInput for two releases of the same noisy bits, whose shared noise would pass for common elements. That a
    keyed scheme had the same secret on both sides cannot be seen here.
    """
    differences: dict[str, tuple[object, object]] = {}
    for name in ("bits", "hashes", "scheme", "seed"):
        differences[name] = (getattr(left.filter, name), getattr(right.filter, name))
    differences["normalization"] = (left.normalization, right.normalization)
    different = {name: values for name, values in differences.items() if values[0] != values[1]}
    names = [f"{header.set_name}/{header.sequence}" for header in (left, right)]
    if different:
        raise NotComparable(names[0], names[1], different)
    if left.chunk_sha256 == right.chunk_sha256:
        raise InvalidInput("other", f"another release; {names[0]} and {names[1]} have the same noisy bits")
