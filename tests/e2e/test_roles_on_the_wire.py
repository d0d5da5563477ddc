"""What each role may do, asked of a real service: every method, every role, sets that are covered, that are not, that are
nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from bad_inputs import creation

from harness.patience import SECONDS
from harness.raw_calls import Failure, RawUpload, fails, failure_of, finish, open_upload, raw_batch, upload
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub
from veilset_server.principals import Role
from veilset_server.rpc.permissions import PERMISSIONS, Permission

PACKAGE = "/veilset.v1.MembershipService/"
METHODS = [method.removeprefix(PACKAGE) for method in PERMISSIONS if method.startswith(PACKAGE)]
ABSENT = "theirs-absent"


REQUESTS: dict[str, Callable[[str], Any]] = {
    "PlanRelease": lambda _: pb.PlanReleaseRequest(),
    "CreateSet": creation,
    "GetSet": lambda name: pb.GetSetRequest(name=name),
    "ListSets": lambda _: pb.ListSetsRequest(),
    "DeleteSet": lambda name: pb.DeleteSetRequest(name=name),
    "AddElements": lambda name: open_upload(name, "u"),
    "AddBatch": lambda name: pb.AddBatchRequest(set_name=name, upload_id="b"),
    "PublishRelease": lambda name: pb.PublishReleaseRequest(set_name=name, request_id="r"),
    "GetRelease": lambda name: pb.GetReleaseRequest(set_name=name),
    "ListReleases": lambda name: pb.ListReleasesRequest(set_name=name),
    "GetBudget": lambda name: pb.GetBudgetRequest(set_name=name),
    "RaiseBudget": lambda name: pb.RaiseBudgetRequest(account=name),
    "ConfirmLoss": lambda name: pb.ConfirmLossRequest(set_name=name),
    "ReconcileReleases": lambda name: pb.ReconcileReleasesRequest(set_name=name),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that asks for tokens, with the sets mine-1 and theirs-1."""
    state = tmp_path_factory.mktemp("guarded") / "state"
    token = new_token(state, "admin")
    with running(ServiceProcess(state)) as process:
        with stub_with(process, token) as stub:
            for name in ("mine-1", "theirs-1"):
                stub.CreateSet(creation(name))
        yield process


@pytest.fixture(scope="module")
def stubs(guarded: ServiceProcess) -> Iterator[dict[str, MembershipServiceStub]]:
    """A stub for each role, for the sets mine-*, and one without a token."""
    opened = {role: stub_with(guarded, new_token(guarded.state, role, ["mine-*"])) for role in Role}
    with stub_with(guarded, None) as nobody:
        yield {str(role): manager.__enter__() for role, manager in opened.items()} | {"nobody": nobody}
    for manager in opened.values():
        manager.__exit__(None, None, None)


def ask(stub: MembershipServiceStub, method: str, set_name: str) -> Failure | None:
    """Make the call; how it failed, or None."""
    request = REQUESTS[method](set_name)
    try:
        if method == "AddElements":
            list(getattr(stub, method)(iter([request]), timeout=SECONDS))
        else:
            getattr(stub, method)(request, timeout=SECONDS)
    except grpc.RpcError as error:
        return failure_of(error)
    return None


def code(failure: Failure | None) -> str:
    """The status of a call."""
    return "OK" if failure is None else failure.code


@pytest.mark.parametrize("method", METHODS)
def test_nobody_gets_past_the_gate(
    stubs: dict[str, MembershipServiceStub], guarded: ServiceProcess, method: str
) -> None:
    """Without credentials no method says anything but that, or that there were too many such calls."""
    failure = ask(stubs["nobody"], method, "mine-1")
    assert code(failure) in ("UNAUTHENTICATED", "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("method", METHODS)
def test_every_method_asks_for_its_roles(stubs: dict[str, MembershipServiceStub], method: str, role: Role) -> None:
    """On a set that is covered: denied by the table, or answered by the method, whatever it says."""
    row = PERMISSIONS[PACKAGE + method]
    assert isinstance(row, Permission)
    answered = code(ask(stubs[role], method, "mine-absent" if method == "DeleteSet" else "mine-1"))
    assert (answered != "PERMISSION_DENIED") == (role in row.roles), answered
    assert answered not in ("UNAUTHENTICATED", "INTERNAL", "UNKNOWN")


@pytest.mark.parametrize("method", [m for m in METHODS if getattr(PERMISSIONS[PACKAGE + m], "sets", ())])
def test_a_denied_set_does_not_tell_whether_it_exists(stubs: dict[str, MembershipServiceStub], method: str) -> None:
    """Even to an admin: the same answer, word for word, for a set of others, for none, and for no name at all."""
    answers = {str(ask(stubs["admin"], method, name)) for name in ("theirs-1", ABSENT, "No Name", "x" * 1000)}
    assert len(answers) == 1
    assert code(ask(stubs["admin"], method, "theirs-1")) == "PERMISSION_DENIED"


def test_an_account_of_others_cannot_be_charged(stubs: dict[str, MembershipServiceStub]) -> None:
    """A set of one's own on another's account would spend their budget, and tell of it."""
    admin = stubs["admin"]
    assert fails(admin.CreateSet, creation("mine-2", account="theirs-1")).code == "PERMISSION_DENIED"
    assert fails(admin.GetBudget, pb.GetBudgetRequest(account="theirs-1")).code == "PERMISSION_DENIED"
    assert fails(admin.RaiseBudget, pb.RaiseBudgetRequest(account="theirs-1")).code == "PERMISSION_DENIED"
    assert fails(admin.ReconcileReleases, pb.ReconcileReleasesRequest()).code == "PERMISSION_DENIED"


def test_a_list_shows_what_is_covered(guarded: ServiceProcess, stubs: dict[str, MembershipServiceStub]) -> None:
    """Page by page, and no page's token names a set of others."""
    with stub_with(guarded, new_token(guarded.state, "admin")) as everything:
        for number in range(6):
            everything.CreateSet(creation(f"theirs-list-{number}"))
            everything.CreateSet(creation(f"mine-list-{number}"))
        seen, token = [], ""
        while True:
            page = stubs["reader"].ListSets(pb.ListSetsRequest(page_size=2, page_token=token))
            seen += [found.name for found in page.sets]
            token = page.next_page_token
            if not token:
                break
            assert token.startswith("mine-")
        assert seen == sorted(seen)
        assert set(seen) == {"mine-1", *(f"mine-list-{number}" for number in range(6))}
        assert len(everything.ListSets(pb.ListSetsRequest()).sets) == 14


def test_an_upload_is_its_principals(guarded: ServiceProcess) -> None:
    """Another principal with the same upload id opens an upload of its own: it neither sees nor continues the first. The same
    principal with its next token does continue."""
    state = guarded.state
    first = new_token(state, "producer", ["mine-*"], name="crm")
    second = new_token(state, "producer", ["mine-*"], name="crm")
    other = new_token(state, "producer", ["mine-*"], name="shop")
    with stub_with(guarded, first) as crm, stub_with(guarded, other) as shop, stub_with(guarded, second) as crm_again:
        with RawUpload(crm, open_upload("mine-1", "shared id"), raw_batch(1, [b"a", b"b"])) as stream:
            stream.opened()
            assert stream.acknowledged() == (1, 2)
            with RawUpload(shop, open_upload("mine-1", "shared id")) as foreign:
                opened = foreign.opened()
                assert (opened.sequence, opened.elements) == (0, 0)
            stream.send(raw_batch(2, [b"c"]))  # nobody took it over
            assert stream.acknowledged() == (2, 3)
        with RawUpload(crm_again, open_upload("mine-1", "shared id"), finish(3)) as stream:
            assert stream.opened().sequence == 2
            assert stream.finished() == 3
        with RawUpload(shop, open_upload("mine-1", "shared id")) as foreign:
            opened = foreign.opened()
            assert (opened.sequence, opened.elements, opened.finished) == (0, 0, False)


def test_the_job_by_roles(guarded: ServiceProcess, tmp_path: Path) -> None:
    """Admin creates, producer fills, publisher publishes, reader reads: each with no more than its own role."""
    tokens = {role: new_token(guarded.state, role, ["job-*"]) for role in Role}
    with stub_with(guarded, tokens[Role.ADMIN]) as admin:
        admin.CreateSet(creation("job-1"))
    with stub_with(guarded, tokens[Role.PRODUCER]) as producer:
        upload(producer, "job-1", [[b"a", b"b"], [b"c"]])
    with stub_with(guarded, tokens[Role.PUBLISHER]) as publisher:
        made = publisher.PublishRelease(pb.PublishReleaseRequest(set_name="job-1", request_id="r")).release
    with stub_with(guarded, tokens[Role.READER]) as reader:
        assert reader.GetRelease(pb.GetReleaseRequest(set_name="job-1")).release == made
