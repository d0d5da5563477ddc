"""What follows from headers alone: sizes from bought counts, and whether two releases may be compared.

A count is the number of distinct digests plus round(X), X the noise of a known law. At confidence 1 - α it is off by at most
q + 1/2, q the two-sided α-quantile of X, as rounding moves it by at most 1/2. All of it is post-processing and costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from veilset.core.encodings.interface import Parameters
from veilset.core.estimates.intervals import check_confidence
from veilset.core.estimates.results import SizeEstimate
from veilset.core.params import HashParameters, Normalization
from veilset.core.privacy.counts import CountMechanism, two_sided_quantile
from veilset.core.release.header import ReleaseHeader
from veilset.errors import InvalidInput, NotComparable


def size_from_count(header: ReleaseHeader, confidence: float = 0.95) -> SizeEstimate:
    """The size from the count in a release, at least 0. Raises InvalidInput if none was bought."""
    count = header.count
    if count is None:
        raise InvalidInput("count", "count is not in this release; publish with --count-epsilon to include one")
    quantile = two_sided_quantile(CountMechanism(count.mechanism), check_confidence(confidence))
    reach = count.scale * quantile + 0.5
    low, best, high = (max(0.0, count.value + offset) for offset in (-reach, 0.0, reach))
    return SizeEstimate(best, low, high, confidence, "count")


def total_size(added: Sequence[SizeEstimate], removed: Sequence[SizeEstimate]) -> SizeEstimate:
    """The size of a generation: the sum over its releases less the removed elements, whose errors are independent."""
    every = [*added, *removed]
    estimate = max(0.0, sum(part.estimate for part in added) - sum(part.estimate for part in removed))
    below = math.hypot(*(part.estimate - part.low for part in added), *(part.high - part.estimate for part in removed))
    above = math.hypot(*(part.high - part.estimate for part in added), *(part.estimate - part.low for part in removed))
    low = 0.0 if math.isinf(below) else max(0.0, estimate - below)
    return SizeEstimate(estimate, low, estimate + above, every[0].confidence, every[0].source)


def check_comparable(left: ReleaseHeader, right: ReleaseHeader) -> None:
    """Raise NotComparable, with what differs and each side's value, unless an element has the same effect on both vectors.

    That needs one encoding of equal dimensions, equal scheme, seed and normalization and, with a keyed scheme, one secret (equal
    check values). Raise InvalidInput for two releases of the same vector, as equal noise would count as common elements.
    """
    names = (name_of(left), name_of(right))
    check_alike(names, (_meaning(left), _meaning(right)))
    if left.chunk_sha256 == right.chunk_sha256:
        raise InvalidInput("other", f"other is the same release: {names[0]} and {names[1]} have the same noisy vector")


def check_alike(names: tuple[str, str], sides: tuple[Mapping[str, object], Mapping[str, object]]) -> None:
    """`check_comparable` for the `meaning` of any two sides, such as a spec and a release. names: of the sides, for the error."""
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
    """All that decides which effect an element has on a vector; name → value."""
    return {
        "encoding": encoding.encoding,
        **encoding.dimensions(),
        "scheme": hashing.scheme,
        "seed": hashing.seed,
        "key_check": hashing.key_check or "none",
        "normalization": normalization.versioned,
    }


def name_of(header: ReleaseHeader) -> str:
    """The name of a release in messages: set/sequence."""
    return f"{header.set_name}/{header.sequence}"
