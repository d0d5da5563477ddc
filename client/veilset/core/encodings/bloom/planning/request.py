"""What a planner is asked: one frozen record, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from veilset.core.encodings.bloom.accuracy import advantage_limit
from veilset.core.encodings.bloom.decoding import Rule
from veilset.core.encodings.bloom.decoding_limits import Limits
from veilset.core.encodings.bloom.planning.objectives import LargestAdvantage, Objective, SmallestVector
from veilset.core.encodings.bloom.planning.pricing import check_planned_size
from veilset.core.params import MAX_BITS, MIN_BITS, PrivacyParameters, check_choice, check_integer
from veilset.errors import InvalidInput

MINIMUM_EFFICIENCY = 0.05
"""Below this share of the possible advantage a setting counts as useless; a coin has 0."""

DEFAULT_BITS_PER_ELEMENT = 64
"""The limit where none is given."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """For ``size`` distinct elements under ``privacy``, the best setting by ``objective`` within a size limit.

    size: n in [1, 10^12], at least privacy.min_size. max_bytes: the packed vector's largest length. bits_per_element: the
    same limit as m/n, more than 0; of two limits the smaller holds. Without any the plan is the shortest vector of at most
    64 bits per element that comes within 1% of the best of them. rule: how the threshold is chosen; ALL_ONES leaves
    the planner only m and k. min_efficiency: the plan is refused below it, in [0, 1); 0 takes whatever comes.
    """

    size: int
    privacy: PrivacyParameters
    max_bytes: int | None = None
    bits_per_element: float | None = None
    objective: Objective = field(default_factory=LargestAdvantage)
    rule: Rule = Rule.BEST
    min_efficiency: float = MINIMUM_EFFICIENCY

    def __post_init__(self) -> None:
        check_planned_size(self.size, self.privacy)
        check_choice("rule", self.rule, Rule)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, MIN_BITS // 8, MAX_BITS // 8)
        shortest = MIN_BITS / self.size
        if self.bits_per_element is not None and not shortest <= self.bits_per_element <= MAX_BITS:
            raise InvalidInput(
                "bits_per_element", f"at least {shortest:g} for {self.size} elements", self.bits_per_element
            )
        if not 0.0 <= self.min_efficiency < 1.0:
            raise InvalidInput("min_efficiency", "a number in [0, 1)", self.min_efficiency)

    @property
    def is_limited(self) -> bool:
        """Whether the caller set a size limit."""
        return self.max_bytes is not None or self.bits_per_element is not None

    @property
    def limit_bits(self) -> int:
        """The largest m."""
        limits = [MAX_BITS]
        if self.max_bytes is not None:
            limits.append(8 * self.max_bytes)
        if self.bits_per_element is not None:
            limits.append(int(self.bits_per_element * self.size))
        if not self.is_limited:
            limits.append(max(MIN_BITS, DEFAULT_BITS_PER_ELEMENT * self.size))
        return max(MIN_BITS, min(limits))

    @property
    def decoder_limits(self) -> Limits:
        """What the decoder goes by in place of the rule; none where the all-ones rule is asked for."""
        return self.objective.limits() if self.rule is Rule.BEST else Limits()

    @property
    def needed_advantage(self) -> float:
        """The advantage below which the plan is refused, at the efficiency that is asked."""
        floor = self.min_efficiency
        if isinstance(self.objective, SmallestVector):
            floor = max(floor, self.objective.min_efficiency)
        return floor * self.advantage_limit

    @property
    def advantage_limit(self) -> float:
        """The advantage that no test can pass under the request's promise."""
        return advantage_limit(self.privacy.epsilon, self.privacy.delta)
