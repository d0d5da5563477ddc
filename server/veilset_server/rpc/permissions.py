"""Who may call what: the one table, RPC → roles, and the request's fields that name sets or budget accounts.

A method without an entry is refused, and a test fails. The check comes before anything is looked up, so that who may not
see a set learns nothing from the answer, not even whether it exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from veilset.errors import PermissionDenied
from veilset_server.principals import Principal, Role

PRODUCER, PUBLISHER, READER, ADMIN = Role.PRODUCER, Role.PUBLISHER, Role.READER, Role.ADMIN
_OWN = "/veilset.v1.MembershipService/"


@dataclass(frozen=True, slots=True)
class Permission:
    """What a method asks of its caller.

    roles: one of them is needed; admin may make every call. sets: paths of the fields that name a set or an account, such
    as "open.set_name"; each one that is given has to be covered. everything_if_empty: where none is given the call is about
    all sets, and needs a principal for all. in_answer: the method itself leaves out what the caller may not see.
    """

    roles: frozenset[Role]
    sets: tuple[str, ...] = ()
    everything_if_empty: bool = False
    in_answer: bool = False


@dataclass(frozen=True, slots=True)
class Public:
    """A unary method that needs no credentials, and ends at once. Its message is not read, and it is answered as for an
    empty one. reason: why its answer reveals nothing."""

    reason: str
    roles: frozenset[Role] = field(default_factory=frozenset)


def _may(*roles: Role, sets: tuple[str, ...] = (), **more: bool) -> Permission:
    return Permission(frozenset({*roles, ADMIN}), sets, **more)


PERMISSIONS: Mapping[str, Permission | Public] = {
    f"{_OWN}PlanRelease": _may(PRODUCER, PUBLISHER, READER),
    f"{_OWN}CreateSet": _may(sets=("name", "account")),
    f"{_OWN}GetSet": _may(PRODUCER, PUBLISHER, READER, sets=("name",)),
    f"{_OWN}ListSets": _may(PRODUCER, PUBLISHER, READER, in_answer=True),
    f"{_OWN}DeleteSet": _may(sets=("name",)),
    f"{_OWN}AddElements": _may(PRODUCER, sets=("open.set_name",)),
    f"{_OWN}AddBatch": _may(PRODUCER, sets=("set_name",)),
    f"{_OWN}PublishRelease": _may(PUBLISHER, sets=("set_name",)),
    f"{_OWN}GetRelease": _may(PUBLISHER, READER, sets=("set_name",)),
    f"{_OWN}ListReleases": _may(PUBLISHER, READER, sets=("set_name",)),
    f"{_OWN}GetBudget": _may(PUBLISHER, sets=("account", "set_name")),
    f"{_OWN}RaiseBudget": _may(sets=("account",)),
    f"{_OWN}ConfirmLoss": _may(sets=("set_name",)),
    f"{_OWN}ReconcileReleases": _may(sets=("set_name",), everything_if_empty=True),
    "/grpc.health.v1.Health/Check": Public("probes bring no credentials; the answer says only that the service runs"),
    "/grpc.health.v1.Health/Watch": _may(PRODUCER, PUBLISHER, READER),  # it stays open, so it needs credentials
    "/grpc.health.v1.Health/List": _may(PRODUCER, PUBLISHER, READER),  # newer releases of gRPC have it
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _may(PRODUCER, PUBLISHER, READER),
}


def permission(method: str) -> Permission | Public:
    """The entry of a method's full name. Raises PermissionDenied if it has none."""
    found = PERMISSIONS.get(method)
    if found is None:
        raise PermissionDenied(
            "permission: this method has no entry in the table of permissions, so no caller may use it"
        )
    return found


def check_role(principal: Principal, method: str) -> None:
    """Raises PermissionDenied unless the principal has a role that may call the method."""
    needed = permission(method)
    if isinstance(needed, Permission) and not principal.roles & needed.roles:
        name = method.rpartition("/")[2]
        raise PermissionDenied(f"permission: {name} needs one of the roles {', '.join(sorted(needed.roles))}")


def check_sets(principal: Principal, method: str, request: Message) -> None:
    """Raises PermissionDenied unless all that the request names is covered, whether it exists or not."""
    needed = permission(method)
    if isinstance(needed, Public) or not needed.sets or principal.covers_all:
        return
    named = list(named_sets(needed, request))
    if not all(map(principal.covers, named)) or (needed.everything_if_empty and not named):
        raise PermissionDenied("permission: these credentials do not cover the set or account named")


def named_sets(needed: Permission, request: Message) -> Iterator[str]:
    """The sets and accounts that a request names."""
    for path in needed.sets:
        found: Any = request
        for name in path.split("."):
            found = getattr(found, name)  # of a part that is not there, what it is by default: empty
        if found:
            yield found
