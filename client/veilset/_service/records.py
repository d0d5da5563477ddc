"""Sets, releases and budgets as the service describes them: frozen records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from veilset._display import Displayed, draw
from veilset.core.encodings.interface import Parameters
from veilset.core.params import Adjacency, HashParameters, Normalization, PrivacyParameters
from veilset.core.privacy.budget import NANO, format_delta, parse_delta
from veilset.core.release import wire
from veilset.core.release.header import ReleaseHeader, decode_header
from veilset.v1 import membership_pb2 as pb

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, repr=False)
class SetInfo(Displayed):
    """A set with the parameters that its owner chose; fields as in `Service.create_set`."""

    name: str
    hashing: HashParameters
    encoding: Parameters
    privacy: PrivacyParameters
    normalization: Normalization
    account: str
    declared_size: int
    shared_seed: bool
    count_epsilon: float = 0.0
    increments: int = 0
    increment_capacity: int = 0
    removals_epsilon: float = 0.0
    expire_days: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Release(Displayed):
    """A release as the service knows it. state: pending, published, lost or expired. delayed_by: why Redis did not accept a
    pending one at the last attempt."""

    set_name: str
    sequence: int
    state: str
    request_id: str
    header: ReleaseHeader
    public_keys: tuple[bytes, ...]
    delayed_by: str = ""


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What a person did to a budget account: gave new totals, or confirmed the loss of the releases of ``lost_set``, which was
    charged. at_us: microseconds since 1970; epsilon in units, delta as exact decimal text."""

    at_us: int
    epsilon: float
    delta: str
    lost_set: str
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Budget(Displayed):
    """A budget account; epsilon in units, delta as exact decimal text.

    adjacency, elements_per_user: relation and unit of every release that is charged to it. changes: the last 1,000 that people
    made, oldest first; only `Service.budget` fills it.
    """

    account: str
    epsilon_total: float
    epsilon_spent: float
    epsilon_left: float
    delta_total: str
    delta_spent: str
    delta_left: str
    charges: int
    adjacency: Adjacency
    elements_per_user: int
    changes: tuple[BudgetChange, ...] = ()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what is spent and what is left of ε and δ, on ``ax`` or a new figure; returns the Axes.

        Raises FailedPrecondition if matplotlib (the extra ``plot``) is missing.
        """
        return draw(self, ax)


class Reconciled(NamedTuple):
    """The result of comparing Redis with the ledger.

    checked: number of releases compared. restored_keys: number of keys written again. unrestorable: (set, sequence) of the
    releases that are damaged in Redis and in the state folder; they stay charged, and the set has to be published anew.
    """

    checked: int
    restored_keys: int
    unrestorable: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, message: pb.ReconcileReleasesResponse) -> Reconciled:
        """Decode the answer."""
        unrestorable = tuple((name.set_name, name.sequence) for name in message.unrestorable)
        return cls(message.checked, message.restored_keys, unrestorable)


def set_info(message: pb.MembershipSet) -> SetInfo:
    """Decode a set and check its fields."""
    return SetInfo(
        name=message.name,
        hashing=wire.hashing_from_proto(message.hashing),
        encoding=wire.encoding_from_proto(message.encoding),
        privacy=wire.privacy_from_proto(message.privacy),
        normalization=wire.from_number("normalization", wire.NORMALIZATION, message.normalization),
        account=message.account,
        declared_size=message.declared_size,
        shared_seed=message.shared_seed,
        count_epsilon=message.count_epsilon,
        increments=message.increments,
        increment_capacity=message.increment_capacity,
        removals_epsilon=message.removals_epsilon,
        expire_days=message.expire_days,
    )


def release_record(message: pb.Release) -> Release:
    """Decode a release and check its header; the signature is not checked."""
    return Release(
        set_name=message.set_name,
        sequence=message.sequence,
        state=pb.ReleaseState.Name(message.state).removeprefix("RELEASE_STATE_").lower(),
        request_id=message.request_id,
        header=decode_header(message.manifest.header),
        public_keys=tuple(signature.public_key for signature in message.manifest.signatures),
        delayed_by=message.delayed_by,
    )


def budget_record(message: pb.Budget, changes: Iterable[pb.BudgetChange] = ()) -> Budget:
    """Decode a budget account."""
    return Budget(
        account=message.account,
        epsilon_total=message.total_nano_epsilon / NANO,
        epsilon_spent=message.spent_nano_epsilon / NANO,
        epsilon_left=(message.total_nano_epsilon - message.spent_nano_epsilon) / NANO,
        delta_total=message.total_delta,
        delta_spent=message.spent_delta,
        delta_left=format_delta(parse_delta(message.total_delta) - parse_delta(message.spent_delta)),
        charges=message.charges,
        adjacency=wire.from_number("adjacency", wire.ADJACENCY, message.adjacency),
        elements_per_user=message.elements_per_user,
        changes=tuple(
            BudgetChange(change.at_us, change.nano_epsilon / NANO, change.delta, change.lost_set, change.reason)
            for change in changes
        ),
    )
