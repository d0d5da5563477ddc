"""The decoder of a release, and a refusal of its limits in the release's own terms: ε, bits, and what no vector could do.

`core.encodings.bloom.decoding_limits` knows the per-bit ε0 alone. A release says which N changed bits its ε0 was calibrated for:
ε = N·ε0 under w-quantile and worst-case; under exact that ε is enough, and a little less may be, too.
"""

from __future__ import annotations

import math

from veilset.core.encodings.bloom.accuracy import true_positive_limit
from veilset.core.encodings.bloom.decoding import Decoder, Rule, make_decoder
from veilset.core.params import MAX_BITS, MAX_EPSILON, check_choice
from veilset.core.release.header import ReleaseHeader
from veilset.errors import PoorUtility

_DIGITS = 4


def make_release_decoder(
    header: ReleaseHeader,
    ones_fraction: float,
    *,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
) -> Decoder:
    """`make_decoder` for a release; ones_fraction: share of ones of its noisy vector. Raises InvalidInput and PoorUtility."""
    try:
        return make_decoder(
            header.filter.bits,
            header.filter.hashes,
            header.flip_probability,
            ones_fraction,
            rule=check_choice("rule", rule, Rule),
            max_false_positive_rate=max_false_positive_rate,
            min_true_positive_rate=min_true_positive_rate,
        )
    except PoorUtility as refused:
        raise advise(refused, header) from None


def advise(refused: PoorUtility, header: ReleaseHeader) -> PoorUtility:
    """The same refusal with needed_epsilon and needed_bits of a release that meets the limit, where there is one."""
    details = dict(refused.details)
    epsilon, bits = _needed_epsilon(details, header), _needed_bits(details, header)
    alone = "needed_together" not in details
    ways = []
    if epsilon is not None:
        details["needed_epsilon"] = f"{epsilon:.{_DIGITS}g}"
        way = f"epsilon {details['needed_epsilon']} instead of {header.privacy.epsilon:g}"
        ways.append(way + " with the same vector" * alone)
    if bits is not None:
        details["needed_bits"] = str(bits)
        ways.append(f"a vector of {bits} bits instead of {header.filter.bits}" + " at the same epsilon" * alone)
    if not alone:  # one of the two is no way
        ways = [" together with ".join(ways)] if len(ways) == 2 else []
    name = f"{header.set_name}/{header.sequence}"
    words = f" For {name} that is {', or '.join(ways)}." if ways else ""
    return PoorUtility(f"{refused.message}.{words}{_what_no_vector_can_do(details, header)}", **details)


def _what_no_vector_can_do(details: dict[str, str], header: ReleaseHeader) -> str:
    """Where a false positive rate is asked for: the true positive rate that privacy leaves at most."""
    if "max_false_positive_rate" not in details:
        return ""
    limit, privacy = float(details["max_false_positive_rate"]), header.privacy
    most = float(true_positive_limit(privacy.epsilon, privacy.delta, limit))
    details["true_positive_limit"] = f"{most:.4g}"
    return (
        f" At epsilon {privacy.epsilon:g} no release of any size and no test with so few false positives finds more than "
        f"{most:.3%} of the members"
    )


def _needed_epsilon(details: dict[str, str], header: ReleaseHeader) -> float | None:
    """ε for a needed ε0, within what a release may have."""
    if "needed_epsilon0" not in details:
        return None
    epsilon = _rounded_up(header.changed_bits * float(details["needed_epsilon0"]))
    return epsilon if epsilon <= MAX_EPSILON else None


def _needed_bits(details: dict[str, str], header: ReleaseHeader) -> int | None:
    """Length for a needed factor, within what a vector may have."""
    if "needed_bits_factor" not in details:
        return None
    bits = math.ceil(_rounded_up(header.filter.bits * float(details["needed_bits_factor"])))
    return bits if bits <= MAX_BITS else None


def _rounded_up(value: float) -> float:
    """To the digits that are shown, so that what is shown is enough."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return math.ceil(value / unit * (1.0 - 1e-12)) * unit
