"""Whether two sides mean the same by their bits: equal elements set equal bits in both, under noise of their own."""

from __future__ import annotations

from veilset.core.params import FilterParameters, Normalization
from veilset.core.release.header import ReleaseHeader
from veilset.errors import InvalidInput, NotComparable


def check_comparable(left: ReleaseHeader, right: ReleaseHeader) -> None:
    """Raise NotComparable, with what differs and each side's value, unless two releases mean the same by their bits.

    That takes equal bits, hashes, scheme, seed and normalisation and, with a keyed scheme, one secret (told by its check
    value). Raise InvalidInput for two releases of the same noisy bits, whose shared noise would pass for common elements.
    """
    names = (name_of(left), name_of(right))
    check_alike(names, (left.filter, right.filter), (left.normalization, right.normalization))
    if left.chunk_sha256 == right.chunk_sha256:
        raise InvalidInput("other", f"another release; {names[0]} and {names[1]} have the same noisy bits")


def check_alike(
    names: tuple[str, str],
    shapes: tuple[FilterParameters, FilterParameters],
    normalizations: tuple[Normalization, Normalization],
) -> None:
    """The same for any two sides, such as a spec and a release; ``names``: what the error calls them."""
    sides = [_meaning(*side) for side in zip(shapes, normalizations, strict=True)]
    different = {name: (value, sides[1][name]) for name, value in sides[0].items() if value != sides[1][name]}
    if different:
        raise NotComparable(*names, different)


def name_of(header: ReleaseHeader) -> str:
    """What errors call a release."""
    return f"{header.set_name}/{header.sequence}"


def _meaning(shape: FilterParameters, normalization: Normalization) -> dict[str, object]:
    """All that decides which bits an element sets."""
    return {
        "bits": shape.bits,
        "hashes": shape.hashes,
        "scheme": shape.scheme,
        "seed": shape.seed,
        "key_check": shape.key_check or "none",
        "normalization": normalization.versioned,
    }
