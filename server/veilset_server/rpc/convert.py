"""Records → protobuf messages of membership.proto."""

from __future__ import annotations

from collections.abc import Mapping

from veilset.core.encodings.planning import Plan
from veilset.core.privacy.budget import format_delta
from veilset.core.release import wire
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import release_pb2
from veilset_server.records import Account, BudgetChange, ReleaseState, SetDescription, StoredRelease

_RELEASE_STATES = {
    ReleaseState.PENDING: pb.RELEASE_STATE_PENDING,
    ReleaseState.PUBLISHED: pb.RELEASE_STATE_PUBLISHED,
    ReleaseState.LOST: pb.RELEASE_STATE_LOST,
    ReleaseState.EXPIRED: pb.RELEASE_STATE_EXPIRED,
}


def set_message(description: SetDescription) -> pb.MembershipSet:
    """A set's public description."""
    return pb.MembershipSet(
        name=description.name,
        hashing=wire.hashing_to_proto(description.hashing),
        encoding=wire.encoding_to_proto(description.encoding),
        privacy=wire.privacy_to_proto(description.privacy),
        normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
        account=description.account,
        created_at_us=description.created_at_us,
        declared_size=description.declared_size,
        shared_seed=description.shared_seed,
        count_epsilon=description.count_epsilon,
        increments=description.increments,
        increment_capacity=description.increment_capacity,
        removals_epsilon=description.removals_epsilon,
        expire_days=description.expire_days,
    )


def release_message(release: StoredRelease, delays: Mapping[str, str]) -> pb.Release:
    """A release with its manifest. delays: why releases of a set are not delivered."""
    pending = release.state is ReleaseState.PENDING
    return pb.Release(
        set_name=release.set_name,
        sequence=release.sequence,
        state=_RELEASE_STATES[release.state],
        manifest=release_pb2.SignedHeader.FromString(release.manifest),
        request_id=release.request_id,
        delayed_by=delays.get(release.set_name, "") if pending else "",
    )


def budget_message(account: Account) -> pb.Budget:
    """A budget account; sums are exact."""
    return pb.Budget(
        account=account.name,
        total_nano_epsilon=account.total_nano_epsilon,
        spent_nano_epsilon=account.spent_nano_epsilon,
        total_delta=format_delta(account.total_delta),
        spent_delta=format_delta(account.spent_delta),
        charges=account.charges,
        adjacency=wire.to_number(wire.ADJACENCY, account.adjacency),  # type: ignore[arg-type]
        elements_per_user=account.elements_per_user,
    )


def change_message(change: BudgetChange) -> pb.BudgetChange:
    """A change of a budget, field by field."""
    return pb.BudgetChange(
        at_us=change.at_us,
        nano_epsilon=change.nano_epsilon,
        delta=format_delta(change.delta),
        lost_set=change.lost_set,
        reason=change.reason,
    )


def plan_message(plan: Plan) -> pb.Plan:
    """A plan, field by field."""
    return pb.Plan(
        encoding=wire.encoding_to_proto(plan.parameters),
        privacy=wire.privacy_to_proto(plan.privacy),
        true_positive_rate=plan.true_positive_rate,
        false_positive_rate=plan.false_positive_rate,
        advantage=plan.advantage,
        advantage_limit=plan.advantage_limit,
        efficiency=plan.efficiency,
        attacker_accuracy_limit=plan.attacker_accuracy_limit,
        bytes=plan.bytes,
        generation=[
            pb.GenerationRates(
                increments=rates.increments,
                true_positive_rate=rates.true_positive_rate,
                false_positive_rate=rates.false_positive_rate,
                bytes=rates.bytes,
            )
            for rates in plan.milestones
        ],
        removal_rate=plan.removal_rate,
    )
