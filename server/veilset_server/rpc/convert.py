"""Between records and the messages of membership.proto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message

from veilset.core.encodings.planning import Plan
from veilset.core.params import Calibration, HashScheme, Normalization
from veilset.core.privacy.budget import format_delta
from veilset.core.release import wire
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import release_pb2
from veilset_server.records import Account, BudgetChange, ReleaseState, SetDescription, StoredRelease
from veilset_server.usecases.budgets import CountPurchase
from veilset_server.usecases.publishing import PublishRequest
from veilset_server.usecases.sets import SetRequest

_RELEASE_STATES = {
    ReleaseState.PENDING: pb.RELEASE_STATE_PENDING,
    ReleaseState.PUBLISHED: pb.RELEASE_STATE_PUBLISHED,
    ReleaseState.LOST: pb.RELEASE_STATE_LOST,
    ReleaseState.EXPIRED: pb.RELEASE_STATE_EXPIRED,
}


def _scalars(record: object, message: Message | type[Message]) -> dict[str, Any]:
    """The numbers, texts and flags of the record that the message has under the same names."""
    names = (item.name for item in message.DESCRIPTOR.fields if item.message_type is None and item.enum_type is None)
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def set_message(description: SetDescription) -> pb.MembershipSet:
    """A set's public description."""
    return pb.MembershipSet(
        **_scalars(description, pb.MembershipSet),
        hashing=wire.hashing_to_proto(description.hashing),
        encoding=wire.encoding_to_proto(description.encoding),
        privacy=wire.privacy_to_proto(description.privacy),
        normalization=wire.to_number(wire.NORMALIZATION, description.normalization),  # type: ignore[arg-type]
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
    exact = {"total_delta": format_delta(account.total_delta), "spent_delta": format_delta(account.spent_delta)}
    adjacency = wire.to_number(wire.ADJACENCY, account.adjacency)
    return pb.Budget(**_scalars(account, pb.Budget) | exact, account=account.name, adjacency=adjacency)  # type: ignore[arg-type]


def change_message(change: BudgetChange) -> pb.BudgetChange:
    """A change of a budget."""
    return pb.BudgetChange(**_scalars(change, pb.BudgetChange) | {"delta": format_delta(change.delta)})


def plan_message(plan: Plan) -> pb.Plan:
    """A plan with the rates that it predicts."""
    return pb.Plan(
        **_scalars(plan, pb.Plan),
        encoding=wire.encoding_to_proto(plan.parameters),
        privacy=wire.privacy_to_proto(plan.privacy),
        generation=[pb.GenerationRates(**_scalars(rates, pb.GenerationRates)) for rates in plan.milestones],
    )


def publish_request(request: pb.PublishReleaseRequest) -> PublishRequest:
    """What a caller asks to be published. Raises InvalidInput."""
    name, dimensions = wire.dimensions_from_proto(request.encoding)
    return PublishRequest(
        request.set_name,
        request.request_id,
        CountPurchase(request.count.epsilon, request.count.delta) if request.HasField("count") else None,
        request.epsilon,
        name,
        dimensions,
        request.increment,
        request.increments if request.HasField("increments") else None,
    )


def set_request(request: pb.CreateSetRequest, owner: str) -> SetRequest:
    """The set that the principal ``owner`` asks for. Raises InvalidInput."""
    seed = request.seed if request.HasField("seed") else None
    default = Calibration.W_QUANTILE if seed is None else Calibration.WORST_CASE
    name, dimensions = wire.dimensions_from_proto(request.encoding)
    given = {item.name: getattr(request, item.name) for item in fields(SetRequest) if hasattr(request, item.name)}
    own = {
        "privacy": wire.privacy_from_proto(request.privacy, default),
        "encoding": name,
        "dimensions": dimensions,
        "scheme": wire.from_number("scheme", wire.HASH_SCHEME, request.scheme, HashScheme.MMH3),
        "seed": seed,
        "key_check": request.key_check.hex(),
        "normalization": wire.from_number(
            "normalization", wire.NORMALIZATION, request.normalization, Normalization.NONE
        ),
        "budget_delta": request.budget_delta if request.HasField("budget_delta") else None,
        "owner": owner,
    }
    return SetRequest(**given | own)
