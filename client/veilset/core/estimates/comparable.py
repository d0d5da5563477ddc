"""Whether two sides mean the same by their vectors: equal elements do the same to both, under noise of their own."""

from __future__ import annotations

from collections.abc import Mapping

from veilset.core.encodings.interface import Parameters
from veilset.core.params import HashParameters, Normalization
from veilset.core.release.header import ReleaseHeader
from veilset.errors import InvalidInput, NotComparable


def check_comparable(left: ReleaseHeader, right: ReleaseHeader) -> None:
    """Raise NotComparable, with what differs and each side's value, unless two releases mean the same by their vectors.

    That takes one encoding of equal dimensions, equal scheme, seed and normalization and, with a keyed scheme, one secret
    (known by its check value). Raise InvalidInput for two releases of the same vector, whose shared noise would pass for
    common elements.
    """
    names = (name_of(left), name_of(right))
    check_alike(names, (_meaning(left), _meaning(right)))
    if left.chunk_sha256 == right.chunk_sha256:
        raise InvalidInput("other", f"other is the same release: {names[0]} and {names[1]} have the same noisy vector")


def check_alike(names: tuple[str, str], sides: tuple[Mapping[str, object], Mapping[str, object]]) -> None:
    """The same for the meanings of any two sides, such as a spec and a release; ``names``: what the error calls them."""
    left, right = sides
    fields = [*left, *(name for name in right if name not in left)]
    different = {
        name: (left.get(name, "none"), right.get(name, "none"))
        for name in fields
        if left.get(name, "none") != right.get(name, "none")
    }
    if different:
        raise NotComparable(*names, different)


def _meaning(header: ReleaseHeader) -> dict[str, object]:
    return meaning(header.encoding, header.hashing, header.normalization)


def meaning(encoding: Parameters, hashing: HashParameters, normalization: Normalization) -> dict[str, object]:
    """All that decides what an element does to a vector."""
    return {
        "encoding": encoding.encoding,
        **encoding.dimensions(),
        "scheme": hashing.scheme,
        "seed": hashing.seed,
        "key_check": hashing.key_check or "none",
        "normalization": normalization.versioned,
    }


def name_of(header: ReleaseHeader) -> str:
    """What errors call a release."""
    return f"{header.set_name}/{header.sequence}"
