"""The table of permissions: every method has its row, and the row is the one that was decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from veilset.errors import PermissionDenied
from veilset.v1 import membership_pb2
from veilset_server.principals import EVERYBODY, Role, make_principal
from veilset_server.rpc.permissions import (
    PERMISSIONS,
    Permission,
    Public,
    check_role,
    check_sets,
    named_sets,
    permission,
)
from veilset_server.rpc.server import served_methods

SERVICE = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"]
METHODS = {f"/{SERVICE.full_name}/{method.name}": method for method in SERVICE.methods}

# Said a second time, and by hand: a change of the table is a change of who may do what.
PRODUCER, PUBLISHER, READER, ADMIN = "producer", "publisher", "reader", "admin"
MAY = {
    "PlanRelease": {PRODUCER, PUBLISHER, READER, ADMIN},
    "CreateSet": {ADMIN},
    "GetSet": {PRODUCER, PUBLISHER, READER, ADMIN},
    "ListSets": {PRODUCER, PUBLISHER, READER, ADMIN},
    "DeleteSet": {ADMIN},
    "AddElements": {PRODUCER, ADMIN},
    "AddBatch": {PRODUCER, ADMIN},
    "PublishRelease": {PUBLISHER, ADMIN},
    "GetRelease": {PUBLISHER, READER, ADMIN},
    "ListReleases": {PUBLISHER, READER, ADMIN},
    "GetBudget": {PUBLISHER, ADMIN},
    "RaiseBudget": {ADMIN},
    "ConfirmLoss": {ADMIN},
    "ReconcileReleases": {ADMIN},
}
NAMES = {"name", "set_name", "account"}
"""What fields are called that hold the name of a set or of an account."""


def naming_fields(message: Descriptor, path: str = "") -> Iterator[str]:
    """Paths of all fields of a request that name a set or an account, at any depth."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
            yield from naming_fields(field.message_type, f"{path}{field.name}.")
        elif field.type == FieldDescriptor.TYPE_STRING and field.name in NAMES:
            yield path + field.name


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    """Of every service on the port. One that is forgotten here is refused at run time."""
    assert set(served_methods()) - set(PERMISSIONS) == set()
    assert set(PERMISSIONS) - set(served_methods()) <= {"/grpc.health.v1.Health/List"}  # older releases of gRPC
    assert {method.name for method in SERVICE.methods} == set(MAY)


@pytest.mark.parametrize("method", METHODS)
def test_roles_are_as_decided(method: str) -> None:
    """Admin may do everything, each other role its own."""
    row = PERMISSIONS[method]
    assert isinstance(row, Permission)
    assert {str(role) for role in row.roles} == MAY[METHODS[method].name]
    for role in Role:
        principal = make_principal("p", [role], ["*"])
        if role in row.roles:
            check_role(principal, method)
        else:
            with pytest.raises(PermissionDenied, match=METHODS[method].name):
                check_role(principal, method)


@pytest.mark.parametrize("method", METHODS)
def test_every_field_that_names_a_set_is_checked(method: str) -> None:
    """And a method without such a field leaves out of its answer what the caller may not see, or tells of no set at all."""
    row = PERMISSIONS[method]
    assert isinstance(row, Permission)
    fields = sorted(naming_fields(METHODS[method].input_type))
    assert sorted(row.sets) == fields
    assert fields or row.in_answer or METHODS[method].name == "PlanRelease"


@pytest.mark.parametrize("method", METHODS)
def test_one_name_that_is_not_covered_is_enough(method: str) -> None:
    """Whichever field it stands in."""
    row = PERMISSIONS[method]
    assert isinstance(row, Permission)
    own = make_principal("p", Role, ["mine-*"])
    make = GetMessageClass(METHODS[method].input_type)
    for path in row.sets:
        for name, allowed in (("mine-1", True), ("yours-1", False), ("mine", False), ("x-mine-1", False)):
            request = make()
            *parents, last = path.split(".")
            inner = request
            for parent in parents:
                inner = getattr(inner, parent)
            setattr(inner, last, name)
            assert list(named_sets(row, request)) == [name]
            if allowed:
                check_sets(own, method, request)
            else:
                with pytest.raises(PermissionDenied):
                    check_sets(own, method, request)
            check_sets(EVERYBODY, method, request)


def test_reconciling_everything_needs_everything() -> None:
    """An empty name means all sets there."""
    method = f"/{SERVICE.full_name}/ReconcileReleases"
    request = GetMessageClass(METHODS[method].input_type)()
    with pytest.raises(PermissionDenied):
        check_sets(make_principal("p", ["admin"], ["a*", "b*"]), method, request)
    check_sets(make_principal("p", ["admin"], ["a*", "*"]), method, request)


def test_a_method_without_a_row_is_refused() -> None:
    """To everybody."""
    for ask in (permission, lambda method: check_role(EVERYBODY, method)):
        with pytest.raises(PermissionDenied):
            ask(f"/{SERVICE.full_name}/NewMethod")


def test_what_needs_no_credentials_tells_only_that_the_service_runs() -> None:
    """Whether it is ready, once for each question; and nothing that stays open."""
    public = {method for method, row in PERMISSIONS.items() if isinstance(row, Public)}
    assert public == {"/grpc.health.v1.Health/Check"}
