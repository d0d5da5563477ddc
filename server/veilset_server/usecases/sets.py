"""Creating, describing and deleting sets, and their budgets. Reads no element."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from veilset.core.encodings import DEFAULT_ENCODING, check_increments, find_encoding
from veilset.core.encodings.interface import Parameters
from veilset.core.encodings.planning import (
    MINIMUM_EFFICIENCY,
    UNKNOWN_SIZE,
    Plan,
    PlanRequest,
    default_increment,
    evaluate,
    objective_of,
)
from veilset.core.params import (
    MAX_BUDGET_EPSILON,
    HashParameters,
    HashScheme,
    Normalization,
    PrivacyParameters,
    check_integer,
    check_key_check,
    check_name,
)
from veilset.core.privacy.budget import charge_delta, format_nano_epsilon, to_nano_epsilon
from veilset.errors import FailedPrecondition, InvalidInput, LimitExceeded, NotFound, PoorUtility, must_be
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Clock, Entropy
from veilset_server.records import SetDescription, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.usecases.budgets import DEFAULT_COUNT_EPSILON, capacity_noise
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.rollback import RollbackGuard

MAX_SEQUENCE = (1 << 63) - 1
MAX_EXPIRE_DAYS = 3660


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A set as asked for; 0, None or "" mean "choose for me" as in membership.proto's CreateSetRequest."""

    name: str
    size: int
    privacy: PrivacyParameters
    encoding: str = ""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    max_bytes: int = 0
    max_false_positive_rate: float = 0.0
    min_true_positive_rate: float = 0.0
    scheme: HashScheme = HashScheme.MMH3
    seed: int | None = None
    key_check: str = ""
    normalization: Normalization = Normalization.NONE
    account: str = ""
    budget_epsilon: float = 0.0
    budget_delta: float | None = None
    allow_poor_utility: bool = False
    owner: str = ""
    count_epsilon: float = 0.0
    increments: int = 0
    increment_capacity: int = 0
    removals_epsilon: float = 0.0
    expire_days: int = 0

    def __post_init__(self) -> None:
        if self.size and self.count_epsilon:
            raise InvalidInput(
                "count_epsilon",
                "count_epsilon has no place beside size: the capacity follows from the one or the other",
            )
        check_integer("expire_days", self.expire_days, 0, MAX_EXPIRE_DAYS)
        if self.increments and not (self.increment_capacity or self.size):
            raise InvalidInput(
                "increment_capacity",
                "increment_capacity is missing: without a size, say how many new elements one increment is made for",
            )

    @property
    def capacity_of_increments(self) -> int:
        """How many new elements an increment is made for: a hundredth of the size, at least 1000, unless given."""
        if not self.increments:
            return 0
        return self.increment_capacity or default_increment(self.size)

    @property
    def planned(self) -> tuple[int, PrivacyParameters, float]:
        """The size and the promise that the vector is planned for, and the part of ε that buys its capacity. Without a size
        that is a noisy count at each publish. Raises InvalidInput."""
        if self.size:
            return self.size, self.privacy, 0.0
        count_epsilon = self.count_epsilon or DEFAULT_COUNT_EPSILON
        size = max(UNKNOWN_SIZE, self.privacy.min_size)
        return size, capacity_noise(self.privacy, count_epsilon)[0], count_epsilon

    @property
    def account_name(self) -> str:
        """The budget account: the set's own unless another is named."""
        return self.account or self.name


@dataclass(frozen=True, slots=True)
class SetLimits:
    """What one service accepts: the longest vector in bits, and the number of sets, in all and of one owner."""

    max_bits: int = 1 << 35
    max_sets: int = 10_000
    max_sets_of_owner: int | None = None


class Sets:
    """Creates and deletes sets. ``set_locks``: a set is not published while it is deleted."""

    def __init__(
        self,
        ledger: SqliteLedger,
        runs: Runs,
        artefacts: ArtefactFiles,
        entropy: Entropy,
        clock: Clock,
        set_locks: KeyedLocks,
        delivery: Delivery,
        guard: RollbackGuard,
        limits: SetLimits,
    ) -> None:
        self._ledger = ledger
        self._runs = runs
        self._artefacts = artefacts
        self._entropy = entropy
        self._clock = clock
        self._set_locks = set_locks
        self._delivery = delivery
        self._guard = guard
        self._limits = limits

    def plan(self, request: SetRequest) -> Plan:
        """The encoding that the set would have, with the rates to expect. May search for seconds; takes no lock.

        Raises InvalidInput, PoorUtility (unless allowed), LimitExceeded.
        """
        check_name("name", request.name)
        if request.scheme is HashScheme.BLAKE2B and not request.key_check:
            raise InvalidInput(
                "key_check", f"key_check is needed with scheme {request.scheme}, so that a wrong secret is noticed"
            )
        check_key_check(request.key_check, request.scheme)
        check_name("account", request.account_name)
        plan = self._plan(request)
        check_length(plan.parameters, self._limits.max_bits)
        if request.increments:
            check_increments(plan)
            _ = plan.removal_rate  # refuses what no vector of removed elements could do
        if plan.efficiency < MINIMUM_EFFICIENCY and not request.allow_poor_utility:
            raise _poor(request, plan)
        return plan

    def create(self, request: SetRequest, plan: Plan) -> StoredSet:
        """Create an empty set as planned, and its budget account.

        Raises InvalidInput, AlreadyExists, FailedPrecondition, LimitExceeded, StorageFull; nothing is left behind then.
        """
        privacy = request.privacy
        least = float(Decimal(repr(privacy.epsilon)) + Decimal(repr(request.removals_epsilon)))
        budget_epsilon = request.budget_epsilon or least
        if not least <= budget_epsilon <= MAX_BUDGET_EPSILON:
            allowed = f"a number in [{least:g}, {MAX_BUDGET_EPSILON:g}], at least what one base release costs"
            raise must_be("budget_epsilon", allowed, budget_epsilon)
        seed = self._entropy.seed32() if request.seed is None else request.seed
        description = SetDescription(
            name=request.name,
            hashing=HashParameters(request.scheme, seed, request.key_check),
            encoding=plan.parameters,
            privacy=privacy,
            normalization=request.normalization,
            account=request.account_name,
            created_at_us=self._clock.now_us(),
            declared_size=request.size,
            shared_seed=request.seed is not None,
            owner=request.owner,
            count_epsilon=request.planned[2],
            increments=request.increments,
            increment_capacity=request.capacity_of_increments,
            removals_epsilon=request.removals_epsilon,
            expire_days=request.expire_days,
        )
        self._refuse_smaller_account(request)
        budget = to_nano_epsilon(budget_epsilon), _delta_budget(request, budget_epsilon)
        quotas = self._limits.max_sets, self._limits.max_sets_of_owner
        return self._ledger.create_set(description, *budget, *quotas)

    def _plan(self, request: SetRequest) -> Plan:
        family = find_encoding(request.encoding or DEFAULT_ENCODING)
        size, privacy, _ = request.planned
        wanted = PlanRequest(
            size,
            privacy,
            max_bytes=request.max_bytes or None,
            objective=objective_of(request.max_false_positive_rate, request.min_true_positive_rate),
            min_efficiency=0.0 if request.allow_poor_utility else MINIMUM_EFFICIENCY,
            increments=request.increments,
            increment_capacity=request.increment_capacity,
            removals_epsilon=request.removals_epsilon,
        )
        if request.dimensions:
            return evaluate(family.calibrate(privacy, request.dimensions), wanted)
        return plan_once(family, within(wanted, self._limits.max_bits))

    def _refuse_smaller_account(self, request: SetRequest) -> None:
        """An existing account keeps its budget, so a request for more than it has is refused."""
        with suppress(NotFound):
            self._ledger.get_set(request.name)
            return  # the ledger refuses a name that exists
        name = request.account_name
        try:
            account = self._ledger.get_account(name)
        except NotFound:
            return
        if request.budget_epsilon and to_nano_epsilon(request.budget_epsilon) > account.total_nano_epsilon:
            raise FailedPrecondition(
                f"budget_epsilon: the account {name} exists with a total epsilon of "
                f"{format_nano_epsilon(account.total_nano_epsilon)}; raise it first, or name another account",
                field="budget_epsilon",
            )

    def delete(self, name: str) -> None:
        """Delete a set, what it holds and its releases; its charges stay.

        The releases go from the release store first: if it cannot be reached nothing is deleted, and a crash behind
        that step leaves a set whose releases the next reconcile restores. What Redis shows of the set may be the only
        evidence that the ledger was rolled back, so while it shows more than the ledger knows nothing is deleted. Raises
        InvalidInput, NotFound, Unavailable, StateRolledBack, FailedPrecondition (another service's releases are there).
        """
        stored = self._ledger.get_set(check_name("name", name))
        self._guard.check(name, stored.description.account)  # under no lock: Redis may hang
        with self._set_locks[stored.set_id]:
            releases = self._ledger.list_releases(name, 0, MAX_SEQUENCE)  # under the lock none is added
            with self._delivery.locks[name]:  # meanwhile none of its releases is delivered
                self._ledger.get_set_by_id(stored.set_id)  # another may have deleted it, and a new one bear its name
                self._delivery.forget(name, releases)
                self._ledger.delete_set(name)
            self._runs.discard()
            for release in releases:
                self._artefacts.remove(release.set_id, release.sequence)


def _delta_budget(request: SetRequest, budget_epsilon: float) -> Fraction:
    """As many deltas as the budget holds epsilons, unless given."""
    delta = charge_delta(request.privacy.delta)
    if request.budget_delta is None:
        return delta * int(budget_epsilon / request.privacy.epsilon + 1e-9)
    if not request.privacy.delta <= request.budget_delta <= 1:
        raise must_be("budget_delta", f"a number in [delta ({request.privacy.delta:g}), 1]", request.budget_delta)
    return charge_delta(request.budget_delta)


def within(wanted: PlanRequest, max_bits: int) -> PlanRequest:
    """The request with this service's limit to the length of a vector."""
    return replace(wanted, max_bytes=max_bits // 8) if wanted.limit_bits > max_bits else wanted


@lru_cache(maxsize=256)
def plan_once(family: type[Parameters], request: PlanRequest) -> Plan:
    """`Parameters.plan`, searched for once, since many sets are created alike; a request is public numbers only."""
    return family.plan(request)


def check_length(parameters: Parameters, max_bits: int) -> None:
    """Raise LimitExceeded if the vector is longer than this service allows."""
    if 8 * parameters.vector_bytes > max_bits:
        field = next(iter(parameters.DIMENSIONS))
        raise LimitExceeded(
            f"{field}: {parameters} make a vector of {8 * parameters.vector_bytes} bits, more than this service's limit of "
            f"{max_bits}",
            field=field,
            limit=max_bits,
        )


def _poor(request: SetRequest, plan: Plan) -> PoorUtility:
    family = type(plan.parameters)
    better = family.plan(PlanRequest(request.size, request.privacy, min_efficiency=0.0))
    suggested = {f"better_{name}": value for name, value in better.parameters.dimensions().items()}
    return PoorUtility(
        f"{plan.parameters} at epsilon {request.privacy.epsilon:g} answer with TPR {plan.true_positive_rate:.3f} and FPR "
        f"{plan.false_positive_rate:.3f}, an efficiency of {plan.efficiency:.3f}; {better.parameters} reach "
        f"{better.efficiency:.3f}. Set allow_poor_utility to create it all the same",
        field=next(iter(family.DIMENSIONS)),
        efficiency=plan.efficiency,
        true_positive_rate=plan.true_positive_rate,
        false_positive_rate=plan.false_positive_rate,
        better_efficiency=better.efficiency,
        **suggested,
    )
