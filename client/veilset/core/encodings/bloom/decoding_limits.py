"""A reader's limit to an error rate: its range, and the refusal that says what would reach it.

The refusals speak of the per-bit ε0 because the release's ε does not reach a decoder. ε is proportional to ε0 under
w-quantile and worst-case calibration, and nearly so under exact, so the same factor holds for ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from veilset.errors import InvalidInput, PoorUtility


@dataclass(frozen=True, slots=True)
class Limits:
    """At most one of: the largest FPR, the smallest TPR; each in (0, 1)."""

    max_false_positive_rate: float | None = None
    min_true_positive_rate: float | None = None

    def __post_init__(self) -> None:
        for field in ("max_false_positive_rate", "min_true_positive_rate"):
            value = getattr(self, field)
            if value is not None and not 0.0 < value < 1.0:
                raise InvalidInput(field, "a number in (0, 1)", value)
        if self.max_false_positive_rate is not None and self.min_true_positive_rate is not None:
            raise InvalidInput("min_true_positive_rate", "absent where max_false_positive_rate is given")

    @property
    def given(self) -> bool:
        """Whether there is a limit at all."""
        return self.max_false_positive_rate is not None or self.min_true_positive_rate is not None


def per_bit_epsilon(flip_probability: float) -> float:
    """ε0 = ln(1/p_flip - 1), for p_flip in (0, 1/2]."""
    return math.log1p(-flip_probability) - math.log(flip_probability)


def refuse_false_positive_limit(
    limit: float, distinct: int, flip_probability: float, ones_fraction: float
) -> PoorUtility:
    """The refusal of an FPR below p0^d, that of the strictest test "all d positions read 1".

    The limit needs p0 <= limit^(1/d) with p0 = p_flip + fill·(1 - 2·p_flip): solved for p_flip at this fill (a larger ε0)
    and for the fill at this p_flip (a longer vector, since ln(1 - fill) is proportional to 1/m). Where neither alone will
    do, both together: half of limit^(1/d) for the flips, the rest for the fill.
    """
    possible = ones_fraction**distinct
    needed = limit ** (1.0 / distinct)
    spread = 1.0 - 2.0 * flip_probability
    fill = min(max((ones_fraction - flip_probability) / spread, 0.0), 1.0) if spread > 0.0 else 0.0
    ways = []
    details: dict[str, object] = {"smallest_false_positive_rate": possible}
    if fill < needed:  # then p0 > fill, so fill < 1/2
        epsilon0, present = per_bit_epsilon((needed - fill) / (1.0 - 2.0 * fill)), per_bit_epsilon(flip_probability)
        details["needed_epsilon0"] = epsilon0
        factor = f", epsilon {epsilon0 / present:.3g} times as large" if present > 0.0 else ""
        ways.append(f"a per-bit epsilon of {epsilon0:.4g} instead of {present:.4g}{factor}")
    if flip_probability < needed and 0.0 < fill < 1.0:
        factor_bits = math.log1p(-fill) / math.log1p(-(needed - flip_probability) / spread)
        details["needed_bits_factor"] = factor_bits
        ways.append(f"a vector {factor_bits:.3g} times as long at the same per-bit epsilon")
    if not ways and 0.0 < fill < 1.0:
        half = needed / 2.0
        factor_bits = math.log1p(-fill) / math.log1p(-(needed - half) / (1.0 - 2.0 * half))
        details |= {
            "needed_epsilon0": per_bit_epsilon(half),
            "needed_bits_factor": factor_bits,
            "needed_together": True,
        }
        ways.append(
            f"a per-bit epsilon of {per_bit_epsilon(half):.4g} instead of {per_bit_epsilon(flip_probability):.4g} together "
            f"with a vector {factor_bits:.3g} times as long"
        )
    ways.append("more hashes")
    return PoorUtility(
        f"max_false_positive_rate {limit:g} cannot be reached with this release: the smallest possible is "
        f"{possible:.4g} (all {distinct} positions read 1). It would take " + ", or ".join(ways),
        max_false_positive_rate=limit,
        **details,
    )


def refuse_true_positive_limit(limit: float, distinct: int, flip_probability: float) -> PoorUtility:
    """The refusal of a TPR above 1 - p_flip^d, that of the mildest test "some position reads 1"."""
    possible = 1.0 - flip_probability**distinct
    epsilon0, present = per_bit_epsilon((1.0 - limit) ** (1.0 / distinct)), per_bit_epsilon(flip_probability)
    factor = f", epsilon {epsilon0 / present:.3g} times as large" if present > 0.0 else ""
    return PoorUtility(
        f"min_true_positive_rate {limit:g} cannot be reached with this release: the largest possible is {possible:.4g} "
        f"(any of {distinct} positions reads 1). It would take a per-bit epsilon of {epsilon0:.4g} instead of "
        f"{present:.4g}{factor}, or more hashes",
        min_true_positive_rate=limit,
        largest_true_positive_rate=possible,
        needed_epsilon0=epsilon0,
    )
