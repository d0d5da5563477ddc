"""The planner's requests and plans, alike for all encodings; each encoding has its own search.

An objective is a frozen record that says how good a pair of error rates is: by a merit, also for arrays, so that a search can
compare many settings at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset._display import Displayed, draw
from veilset.core.encodings.decoder import Decoder, Limits, Rule, make_decoder
from veilset.core.encodings.interface import Parameters, pure
from veilset.core.params import MAX_EPSILON, MAX_SIZE, PrivacyParameters, check_choice, check_epsilon, check_integer
from veilset.core.privacy.limits import advantage_limit, attacker_accuracy_limit
from veilset.errors import InvalidInput, PoorUtility, must_be

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MINIMUM_EFFICIENCY = 0.05
"""Below this share of the possible advantage a setting counts as useless; a coin has 0."""

DEFAULT_BITS_PER_ELEMENT = 64
"""Bits per element up to which a search without a size limit looks."""

UNKNOWN_SIZE = 100_000
"""The planned size of a set without a declared size, whose releases are made for noisy counts."""

MAX_VECTOR_BITS = 1 << 40
SMALLEST_EPSILON = 1e-9
MAX_INCREMENTS = 1000
LEAST_INCREMENT = 1000
MEMBERS_LOST = 0.01
_LEAST_BITS = 8
_LEAST_MOST = 1 << 16  # bytes that a vector of few removed elements may take


def default_increment(size: int) -> int:
    """How many new elements an increment is made for by default: a hundredth of the size, at least 1000."""
    return max(LEAST_INCREMENT, -(-size // 100))


def rates_after(
    detected: ArrayLike, mistaken: ArrayLike, increments: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """TPR and FPR of a generation after so many increments, from the rates (t, f) of each single release; float64, same shape.

    An element is in at most one release, and a yes of any release decides: a non-member is answered yes with probability
    1 - (1-f)^(T+1), and a member, which is a non-member of T releases, with 1 - (1-t)·(1-f)^T.
    """
    silent = 1.0 - np.asarray(mistaken, dtype=np.float64)
    missed = 1.0 - np.asarray(detected, dtype=np.float64)
    return 1.0 - missed * silent**increments, 1.0 - silent ** (increments + 1)


class Objective:
    """How good a pair of error rates is; here by the advantage, without a limit to a rate."""

    __slots__ = ()

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """A value that grows with quality, -inf where the limit is broken; float64, of the shape of the rates."""
        return np.asarray(detected, dtype=np.float64) - np.asarray(mistaken, dtype=np.float64)

    def limits(self) -> Limits:
        """The limit to an error rate, if there is one."""
        return Limits()


@dataclass(frozen=True, slots=True)
class LargestAdvantage(Objective):
    """The largest TPR - FPR within the size limit."""

    def __str__(self) -> str:
        return "the largest advantage"


@dataclass(frozen=True, slots=True)
class SmallestFalsePositiveRate(Objective):
    """The smallest FPR with TPR >= min_true_positive_rate, in (0, 1)."""

    min_true_positive_rate: float

    def __post_init__(self) -> None:
        self.limits()

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        reached = np.asarray(detected) >= self.min_true_positive_rate
        return np.where(reached, -np.asarray(mistaken, dtype=np.float64), -np.inf)

    def limits(self) -> Limits:
        return Limits(min_true_positive_rate=self.min_true_positive_rate)

    def __str__(self) -> str:
        return f"a true positive rate of at least {self.min_true_positive_rate:g}"


@dataclass(frozen=True, slots=True)
class LargestTruePositiveRate(Objective):
    """The largest TPR with FPR <= max_false_positive_rate, in (0, 1)."""

    max_false_positive_rate: float

    def __post_init__(self) -> None:
        self.limits()

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        reached = np.asarray(mistaken) <= self.max_false_positive_rate
        return np.where(reached, np.asarray(detected, dtype=np.float64), -np.inf)

    def limits(self) -> Limits:
        return Limits(max_false_positive_rate=self.max_false_positive_rate)

    def __str__(self) -> str:
        return f"a false positive rate of at most {self.max_false_positive_rate:g}"


@dataclass(frozen=True, slots=True)
class SmallestVector(Objective):
    """The fewest bits that reach an efficiency (advantage over its limit) of at least min_efficiency, in (0, 1)."""

    min_efficiency: float

    def __post_init__(self) -> None:
        if not 0.0 < self.min_efficiency < 1.0:
            raise must_be("min_efficiency", "a number in (0, 1)", self.min_efficiency)

    def __str__(self) -> str:
        return f"an efficiency of at least {self.min_efficiency:g}"


def objective_of(max_false_positive_rate: float, min_true_positive_rate: float) -> Objective:
    """The objective of a limit to one of the rates, 0 for none. Raises InvalidInput for both, and out of range."""
    limits = Limits(max_false_positive_rate or None, min_true_positive_rate or None)
    if limits.max_false_positive_rate is not None:
        return LargestTruePositiveRate(limits.max_false_positive_rate)
    if limits.min_true_positive_rate is not None:
        return SmallestFalsePositiveRate(limits.min_true_positive_rate)
    return LargestAdvantage()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """For sets of about ``size`` elements under ``privacy``, the best parameters by ``objective`` within a size limit.

    size: in [1, 10^12], at least privacy.min_size. max_bytes: the packed vector's largest length. bits_per_element: the
    same limit by element, more than 0; of two limits the smaller holds. Without any a search looks up to 64 bits an element.
    rule: which readings are accepted. min_efficiency: a plan is refused below it, in [0, 1); 0 takes whatever comes.
    increments: how many releases of new elements follow; the objective is that of the answers of all together, the rates of a
    plan are those of one release. increment_capacity: new elements of each; 0 for a hundredth of the size, at least 1000.
    removals_epsilon: what pays for their vectors of removed elements, 0 for none.
    """

    size: int
    privacy: PrivacyParameters
    max_bytes: int | None = None
    bits_per_element: float | None = None
    objective: Objective = field(default_factory=LargestAdvantage)
    rule: Rule = Rule.BEST
    min_efficiency: float = MINIMUM_EFFICIENCY
    increments: int = 0
    increment_capacity: int = 0
    removals_epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, MAX_SIZE)
        check_integer("increments", self.increments, 0, MAX_INCREMENTS)
        check_integer("increment_capacity", self.increment_capacity, 0, MAX_SIZE)
        if self.removals_epsilon:
            check_epsilon("removals_epsilon", self.removals_epsilon)
        for name in ("increment_capacity", "removals_epsilon"):
            if getattr(self, name) and not self.increments:
                raise InvalidInput(name, f"{name} belongs with increments; give the number of increments as well")
        check_choice("rule", self.rule, Rule)
        if self.privacy.epsilon < SMALLEST_EPSILON:
            raise must_be(
                "epsilon", f"at least {SMALLEST_EPSILON:g}, the least that can be charged", self.privacy.epsilon
            )
        if self.privacy.min_size > self.size:
            raise must_be("min_size", f"at most the planned size, {self.size}", self.privacy.min_size)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, 1, MAX_VECTOR_BITS // 8)
        shortest = _LEAST_BITS / self.size
        if self.bits_per_element is not None and not shortest <= self.bits_per_element <= MAX_VECTOR_BITS:
            raise must_be("bits_per_element", f"at least {shortest:g} for {self.size} elements", self.bits_per_element)
        if not 0.0 <= self.min_efficiency < 1.0:
            raise must_be("min_efficiency", "a number in [0, 1)", self.min_efficiency)

    @property
    def is_limited(self) -> bool:
        """Whether there is a size limit."""
        return self.max_bytes is not None or self.bits_per_element is not None

    @property
    def limit_bits(self) -> int:
        """The longest vector to look at, in bits."""
        limits = [MAX_VECTOR_BITS]
        if self.max_bytes is not None:
            limits.append(8 * self.max_bytes)
        if self.bits_per_element is not None:
            limits.append(int(self.bits_per_element * self.size))
        if not self.is_limited:
            limits.append(DEFAULT_BITS_PER_ELEMENT * self.size)
        return max(_LEAST_BITS, min(limits))

    @property
    def decoder_limits(self) -> Limits:
        """What the decoder of one release goes by in place of the rule; none where the all-ones rule is asked for. A largest FPR
        is shared out between the releases of a generation."""
        if self.rule is not Rule.BEST:
            return Limits()
        limits = self.objective.limits()
        most = limits.max_false_positive_rate
        if most is None or not self.increments:
            return limits
        return Limits(-math.expm1(math.log1p(-most) / (self.increments + 1)))

    def merit(self, detected: ArrayLike, mistaken: ArrayLike) -> NDArray[np.float64]:
        """The objective's merit of a release with these rates, and of the increments that follow it."""
        return self.objective.merit(*rates_after(detected, mistaken, self.increments))

    def merit_of(self, plan: Plan) -> float:
        """`merit` of a plan's rates."""
        return float(self.merit(plan.true_positive_rate, plan.false_positive_rate))

    @property
    def needed_advantage(self) -> float:
        """The advantage below which a plan is refused."""
        floor = self.min_efficiency
        if isinstance(self.objective, SmallestVector):
            floor = max(floor, self.objective.min_efficiency)
        return floor * self.advantage_limit

    @property
    def advantage_limit(self) -> float:
        """The advantage that no test can pass under the request's promise."""
        return advantage_limit(self.privacy.epsilon, self.privacy.delta)


@dataclass(frozen=True, slots=True)
class GenerationRates:
    """The error rates of a generation after so many increments. bytes: of all its packed vectors."""

    increments: int
    true_positive_rate: float
    false_positive_rate: float
    bytes: int

    @property
    def advantage(self) -> float:
        """TPR - FPR."""
        return self.true_positive_rate - self.false_positive_rate


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Displayed):
    """Parameters, and what they are worth for ``size`` elements.

    privacy: the promise as it is charged, δ = 0 where it holds so. true_positive_rate, false_positive_rate: to expect of one
    release. increments, increment_capacity, removals_epsilon: as of the request.
    """

    parameters: Parameters
    size: int
    privacy: PrivacyParameters
    true_positive_rate: float
    false_positive_rate: float
    increments: int = 0
    increment_capacity: int = 0
    removals_epsilon: float = 0.0

    def after(self, increments: int) -> GenerationRates:
        """The rates after so many increments, and the bytes of all releases so far."""
        detected, mistaken = rates_after(self.true_positive_rate, self.false_positive_rate, increments)
        stays = 1.0
        if self.removals_epsilon:
            size = self.increment_capacity or default_increment(self.size)
            stays = (1.0 - self._removals(size).false_positive_rate) ** increments
        length = self.bytes + increments * self.increment_bytes
        return GenerationRates(increments, stays * float(detected), stays * float(mistaken), length)

    @property
    def milestones(self) -> list[GenerationRates]:
        """`after` 1, half and all of the increments; none without increments."""
        numbers = {1, self.increments // 2, self.increments} - {0} if self.increments else set()
        return [self.after(number) for number in sorted(numbers)]

    @property
    def increment_bytes(self) -> int:
        """Length of an increment's packed vector."""
        size = self.increment_capacity or default_increment(self.size)
        made = for_increment(self.parameters, self.privacy, made_for=self.capacity, size=size).vector_bytes
        if self.removals_epsilon:
            made += self._removals(size).bytes
        return made

    def _removals(self, size: int) -> Plan:
        return plan_removals(
            type(self.parameters), self.privacy, self.removals_epsilon, size=size, increments=self.increments
        )

    @property
    def removal_rate(self) -> float:
        """The chance that a vector of removed elements makes a removed element answered no; 0 without such vectors."""
        if not self.removals_epsilon:
            return 0.0
        return self._removals(self.increment_capacity or default_increment(self.size)).true_positive_rate

    @property
    def advantage(self) -> float:
        """TPR - FPR."""
        return self.true_positive_rate - self.false_positive_rate

    @property
    def advantage_limit(self) -> float:
        """The largest TPR - FPR that the promise allows any test."""
        return advantage_limit(self.privacy.epsilon, self.privacy.delta)

    @property
    def efficiency(self) -> float:
        """Advantage over its limit."""
        return self.advantage / self.advantage_limit

    @property
    def attacker_accuracy_limit(self) -> float:
        """The largest share of right guesses at one user's presence."""
        return attacker_accuracy_limit(self.privacy.epsilon, self.privacy.delta)

    @property
    def capacity(self) -> int:
        """The number of elements that the vector is made for."""
        return self.parameters.capacity_for(self.size)

    @property
    def bytes(self) -> int:
        """Length of the packed vector."""
        return self.parameters.vector_bytes

    @property
    def bits_per_element(self) -> float:
        """Length of the packed vector in bits, per element."""
        return 8 * self.bytes / self.size

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ROC curve of the planned release under the limit of its promise, on ``ax`` or a new figure; returns the Axes.

        Raises FailedPrecondition if matplotlib (the extra ``plot``) is missing.
        """
        return draw(self, ax)

    def record(self) -> dict[str, object]:
        """All values of the plan, flat, for JSON."""
        rates = ("true_positive_rate", "false_positive_rate", "advantage", "advantage_limit", "efficiency")
        more = ("attacker_accuracy_limit", "capacity", "bytes", "bits_per_element")
        return {
            "encoding": self.parameters.encoding,
            **self.parameters.fields(),
            **self.parameters.facts(),
            "epsilon": self.privacy.epsilon,
            "delta": self.privacy.delta,
            **{name: getattr(self, name) for name in rates + more},
        } | ({"generation": [asdict(rates) for rates in self.milestones]} if self.increments else {})

    def __str__(self) -> str:
        return (
            f"{self.parameters.encoding}, {self.parameters}: true positives {self.true_positive_rate:.2%}, false positives "
            f"{self.false_positive_rate:.2%}, efficiency {self.efficiency:.3f}"
        )


def evaluate(parameters: Parameters, request: PlanRequest) -> Plan:
    """The plan of given parameters, even if its utility is poor.

    Raises PoorUtility only if they cannot reach the objective's own limit to an error rate.
    """
    decoder = planned_decoder(parameters, request)
    return Plan(
        parameters,
        request.size,
        parameters.charged(request.privacy),
        decoder.true_positive_rate,
        decoder.false_positive_rate,
        request.increments,
        request.increment_capacity,
        request.removals_epsilon,
    )


def planned_decoder(parameters: Parameters, request: PlanRequest) -> Decoder:
    """The decoder that the request leads to, before a vector exists. Raises PoorUtility as `evaluate` does."""
    limits = request.decoder_limits
    return make_decoder(
        parameters.expected_law(request.size),
        rule=request.rule,
        max_false_positive_rate=limits.max_false_positive_rate,
        min_true_positive_rate=limits.min_true_positive_rate,
    )


def for_increment(base: Parameters, privacy: PrivacyParameters, *, made_for: int, size: int) -> Parameters:
    """The parameters of an increment of ``size`` new elements, with the promise and about the rates of its base.

    base: of the base release, which was ``made_for`` so many elements under ``privacy``, its ``charged`` promise. The increment
    keeps that promise with δ = 0. Never refuses.
    """
    return base.resized(pure(privacy), made_for=made_for, capacity=base.capacity_for(size))


@lru_cache(maxsize=64)
def plan_removals(
    encoding: type[Parameters], privacy: PrivacyParameters, removals_epsilon: float, *, size: int, increments: int
) -> Plan:
    """The plan of an increment's second vector, of up to ``size`` removed elements.

    privacy: the base's, with ``removals_epsilon`` in place of epsilon and δ = 0. increments: how many such vectors there may be;
    all together they remove at most 1% of the members from the answers by mistake. Raises PoorUtility if no plan does that.
    """
    promise = replace(pure(privacy), epsilon=removals_epsilon)
    objective = LargestTruePositiveRate(MEMBERS_LOST)
    most = max(_LEAST_MOST, DEFAULT_BITS_PER_ELEMENT // 8 * size)
    request = PlanRequest(
        size, promise, max_bytes=most, objective=objective, min_efficiency=0.0, increments=max(0, increments - 1)
    )
    return encoding.plan(request)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Plans with twice the ε or twice the size; None where that is out of range."""

    doubled_epsilon: Plan | None
    doubled_bytes: Plan | None


def alternatives(request: PlanRequest, chosen: Plan) -> Alternatives:
    """The plans for twice the ε within the same size, and for twice the size at the same ε.

    The size is the request's limit, or ``chosen.bytes`` if it has none. Plans are not refused for poor utility here.
    """
    free = replace(request, min_efficiency=0.0, max_bytes=None, bits_per_element=None)
    if isinstance(request.objective, SmallestVector):
        free = replace(free, objective=LargestAdvantage())
    limit = request.limit_bits // 8 if request.is_limited else chosen.bytes
    epsilon = 2.0 * request.privacy.epsilon
    stronger = replace(request.privacy, epsilon=min(epsilon, MAX_EPSILON))
    plan = type(chosen.parameters).plan
    return Alternatives(
        _or_none(plan, replace(free, privacy=stronger, max_bytes=max(1, limit))) if epsilon <= MAX_EPSILON else None,
        _or_none(plan, replace(free, max_bytes=2 * limit)) if 16 * limit <= MAX_VECTOR_BITS else None,
    )


def efficiency_curve(
    encoding: type[Parameters], request: PlanRequest, bits_per_element: Sequence[float]
) -> list[tuple[float, Plan]]:
    """The best plan at each size that the encoding can have, as (bits per element, plan); for drawing."""
    free = replace(request, min_efficiency=0.0, max_bytes=None, objective=LargestAdvantage())
    sizes = [size for size in bits_per_element if _LEAST_BITS <= size * request.size <= MAX_VECTOR_BITS]
    plans = [(size, _or_none(encoding.plan, replace(free, bits_per_element=size))) for size in sizes]
    return [(size, plan) for size, plan in plans if plan is not None]


def _or_none(plan: Callable[[PlanRequest], Plan], request: PlanRequest) -> Plan | None:
    try:
        return plan(request)
    except PoorUtility:
        return None
