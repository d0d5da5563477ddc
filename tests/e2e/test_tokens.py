"""``veilset token`` and the service that asks for tokens: made, shown, expired, revoked, damaged, all while it runs."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from bad_inputs import creation

import veilset
from harness.programs import Finished, wait_until
from harness.raw_calls import Failure, RawUpload, fails, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.tokens import new_token, revoke, stub_with
from veilset.errors import InvalidInput, PermissionDenied, Unauthenticated
from veilset.v1 import membership_pb2 as pb
from veilset_server.state.tokens import FILE_NAME, TOKEN, make_token, make_token_id

LIST = pb.ListSetsRequest()
Run = Callable[..., Finished]
Start = Callable[..., ServiceProcess]


def refused(service: ServiceProcess, token: str | None) -> Failure:
    """How a call with that token fails."""
    with stub_with(service, token) as stub:
        return fails(stub.ListSets, LIST)


def let_in(service: ServiceProcess, token: str | None) -> bool:
    """Whether a call with that token gets through."""
    with stub_with(service, token) as stub:
        try:
            stub.ListSets(LIST)
        except grpc.RpcError:
            return False
        return True


def create(run: Run, state: Path, *arguments: str) -> str:
    """``veilset token create``; the token is all that stands on standard output."""
    done = run("token", "create", "--state", state, *arguments)
    assert done.code == 0, done
    token = done.out.removesuffix("\n")
    assert TOKEN.fullmatch(token)
    assert token not in done.err
    return token


def test_a_token_is_printed_once_and_nowhere_else(veilset_here: Run, tmp_path: Path) -> None:
    """The file holds a hash, the list what it is for; only its owner reads the file."""
    state = tmp_path / "state"
    token = create(veilset_here, state, "--role", "producer", "--role", "reader", "--sets", "a-*", "--sets", "b")
    content = (state / FILE_NAME).read_text()
    assert token not in content
    assert token.rpartition("_")[2] not in content
    assert stat.S_IMODE((state / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert sorted(entry.name for entry in state.iterdir()) == [FILE_NAME]
    shown = veilset_here("token", "list", "--state", state, "--json").json_lines()
    assert [(found["id"], found["roles"], found["sets"], found["state"]) for found in shown] == [
        (token.split("_")[1], ["producer", "reader"], ["a-*", "b"], "valid")
    ]
    assert "sha256" not in shown[0]
    listed = veilset_here("token", "list", "--state", state)
    assert token.split("_")[1] in listed.out
    assert token not in listed.out + listed.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", "--role", "owner", "--sets", "*"], "'owner' is not one of"),
        (["create", "--sets", "*"], "Missing option '--role'"),
        (["create", "--role", "reader"], "Missing option '--sets'"),
        (["create", "--role", "reader", "--sets", "A"], "sets must be names of sets"),
        (["create", "--role", "reader", "--sets", "*", "--name", "a b"], "name must be"),
        (["create", "--role", "reader", "--sets", "*", "--expires", "soon"], "must be a time such as"),
        (["create", "--role", "reader", "--sets", "*", "--expires", "0"], "expires must be"),
        (["create", "--role", "reader", "--sets", "*", "--expires", "9999d"], "expires must be"),
        (["revoke", "0123"], "no token has the id '0123'"),
        (["list", "--state", "/nowhere/at/all"], "state: there is no folder /nowhere/at/all"),
        (["revoke", "0123", "--state", "/nowhere/at/all"], "state: there is no folder /nowhere/at/all"),
    ],
)
def test_a_bad_command_makes_nothing(veilset_here: Run, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """One line that says what would be right."""
    (tmp_path / "state").mkdir()
    done = veilset_here("token", arguments[0], "--state", tmp_path / "state", *arguments[1:])
    assert complaint in done.complaint()
    assert not (tmp_path / "state" / FILE_NAME).exists()


def test_tokens_come_and_go_while_the_service_runs(veilset_here: Run, start_service: Start) -> None:
    """The first token closes a door that stood open; each call asks the file as it is now. What is wrong is not told."""
    service = start_service()
    assert let_in(service, None)
    admin = create(veilset_here, service.state, "--role", "admin", "--sets", "*")
    assert let_in(service, admin)
    brief = new_token(service.state, "reader", seconds=1.0)
    revoked = create(veilset_here, service.state, "--role", "reader", "--sets", "*")
    assert let_in(service, revoked)
    done = veilset_here("token", "revoke", revoked.split("_")[1], "--state", service.state)
    assert done.code == 0
    wait_until(lambda: not let_in(service, brief))
    failures = {
        str(refused(service, token))
        for token in (
            None,
            brief,
            revoked,
            make_token(make_token_id()),
            make_token(admin.split("_")[1]),
            admin[:-1],
            admin.upper(),
            "x",
        )
    }
    assert len(failures) == 1
    assert "code='UNAUTHENTICATED'" in failures.pop()
    assert let_in(service, admin)
    listed = veilset_here("token", "list", "--state", service.state, "--json").json_lines()
    assert [found["state"] for found in listed] == ["valid", "expired", "revoked"]
    service.stop()
    log = service.log_path.read_text()
    reasons = [found["why"] for found in service.log_records() if found["event"] == "authentication failed"]
    assert {"missing", "expired", "revoked", "unknown", "wrong", "malformed"} <= set(reasons)
    for token in (admin, brief, revoked):
        assert token.rpartition("_")[2] not in log


def test_a_revoked_token_ends_its_upload_at_the_next_message(start_service: Start) -> None:
    """What was acknowledged stays for the holder of the principal's next token."""
    service = start_service()
    admin = new_token(service.state, "admin")
    first = new_token(service.state, "producer", name="crm")
    with stub_with(service, admin) as stub:
        stub.CreateSet(creation("customers"))
    with stub_with(service, first) as stub, RawUpload(stub, open_upload("customers", "u")) as stream:
        stream.opened()
        stream.send(raw_batch(1, [b"a"]))
        assert stream.acknowledged() == (1, 1)
        revoke(service.state, first)
        stream.send(raw_batch(2, [b"b"]))
        assert stream.failure().code == "UNAUTHENTICATED"
    second = new_token(service.state, "producer", name="crm")
    with stub_with(service, second) as stub, RawUpload(stub, open_upload("customers", "u")) as stream:
        assert (stream.opened().sequence) == 1


def test_a_damaged_file_lets_nobody_in(start_service: Start, veilset_here: Run, tmp_path: Path) -> None:
    """While it runs every call is refused, with a start the service refuses to start; a mended file opens it again."""
    service = start_service()
    admin = new_token(service.state, "admin")
    path = service.state / FILE_NAME
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"sha256") + 20] ^= 1
    widened = whole.replace(b'"*"', b'"z*"')
    later = whole.replace(b'"version": 1', b'"version": 2')
    for damaged in (b"", b"{}", b"[]", b"nonsense", whole[:-20], bytes(flipped), widened, later):
        path.write_bytes(damaged)
        assert refused(service, admin).code == "UNAVAILABLE", damaged
        assert refused(service, None).code in ("UNAUTHENTICATED", "RESOURCE_EXHAUSTED")
        assert "tokens.json: damaged" in veilset_here("token", "list", "--state", service.state).complaint()
        done = veilset_here("token", "create", "--role", "admin", "--sets", "*", "--state", service.state)
        assert "tokens.json: damaged" in done.complaint()
        assert path.read_bytes() == damaged
    path.unlink()
    assert refused(service, admin).code == "UNAVAILABLE"  # there were tokens: their file has to come back
    path.write_bytes(whole)
    assert let_in(service, admin)
    service.stop()
    path.write_bytes(bytes(flipped))
    done = veilset_here("serve", "--state", service.state, "--port", "0")
    assert "tokens.json: damaged" in done.complaint()


def test_tokens_all_ended_let_nobody_in(start_service: Start) -> None:
    """A file whose tokens are all revoked is no open door, nor with ``--auth token`` one that is not there yet."""
    service = start_service(name="revoked")
    token = new_token(service.state, "admin")
    revoke(service.state, token)
    assert refused(service, None).code == "UNAUTHENTICATED"
    service.stop()
    assert refused(service.start(), token).code == "UNAUTHENTICATED"

    waiting = start_service("--auth", "token", name="waiting")
    assert refused(waiting, None).code == "UNAUTHENTICATED"
    assert let_in(waiting, new_token(waiting.state, "reader"))

    open_to_all = start_service("--auth", "none", name="open")
    new_token(open_to_all.state, "admin")
    assert let_in(open_to_all, None)


def test_an_address_that_others_reach_needs_credentials(
    veilset_here: Run, start_service: Start, tmp_path: Path
) -> None:
    """Also behind TLS; ``--auth none`` there takes ``--insecure`` as well."""
    for options in ((), ("--auth", "none")):
        done = veilset_here("serve", "--state", tmp_path / "new", "--host", "0.0.0.0", "--port", "0", *options)  # noqa: S104
        assert "or use a loopback address" in done.complaint()
    service = start_service("--host", "0.0.0.0", "--insecure", "--auth", "token", name="far")  # noqa: S104
    token = new_token(service.state, "reader")
    service.address = service.address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    assert refused(service, None).code == "UNAUTHENTICATED"
    assert let_in(service, token)


def test_the_library_takes_a_token(start_service: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an argument, from VEILSET_TOKEN, or from the file that VEILSET_TOKEN_FILE names; errors are classes of their own."""
    service = start_service()
    token = new_token(service.state, "producer", ["mine-*"])
    (tmp_path / "token").write_text(token + "\n")
    with veilset.connect(service.address, token=token) as connection:
        assert list(connection.list_sets()) == []
        assert token not in repr(connection) + repr(vars(connection)) + str(connection.target)
        with pytest.raises(PermissionDenied, match="needs one of the roles admin") as denied:
            connection.create_set("mine-1", size=1000, epsilon=2, adjacency="add-remove")
        with pytest.raises(PermissionDenied, match="do not cover"):
            connection.add("theirs-1", ["a"])
        assert token not in str(denied.value) + str(denied.value.details)
    with veilset.connect(service.address) as connection, pytest.raises(Unauthenticated, match="no token was sent"):
        list(connection.list_sets())
    for name, value in (("VEILSET_TOKEN", token), ("VEILSET_TOKEN_FILE", str(tmp_path / "token"))):
        monkeypatch.setenv(name, value)
        with veilset.connect(service.address) as connection:
            assert list(connection.list_sets()) == []
        monkeypatch.delenv(name)
    with pytest.raises(InvalidInput) as bad:
        veilset.connect(service.address, token="not a\ntoken")  # noqa: S106 - none
    assert "not a" not in str(bad.value)


def test_the_command_line_takes_a_token(veilset_here: Run, start_service: Start, tmp_path: Path) -> None:
    """From a file or the environment, never as an argument, which others on the machine could read."""
    service = start_service()
    token = create(veilset_here, service.state, "--role", "reader", "--sets", "*")
    (tmp_path / "token").write_text(token)
    server = {"VEILSET_SERVER": service.address}
    refusal = veilset_here("sets", settings=server).complaint()
    assert refusal.startswith("credentials: missing or not valid; no token was sent: ")
    for arguments, settings in (
        (["--token-file", tmp_path / "token"], {}),
        ([], {"VEILSET_TOKEN": token}),
        ([], {"VEILSET_TOKEN_FILE": os.fspath(tmp_path / "token")}),
    ):
        done = veilset_here("sets", *arguments, settings=server | settings)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert "--token " not in veilset_here("sets", "--help").out
    wrong = veilset_here("sets", settings=server | {"VEILSET_TOKEN": token[:-1]})
    assert token[:-1] not in wrong.out + wrong.err


def test_two_commands_at_once_lose_no_token(tmp_path: Path, veilset_here: Run) -> None:
    """Writers take turns; a reader sees one state or the other, never a half."""
    from concurrent.futures import ThreadPoolExecutor

    state = tmp_path / "state"
    new_token(state, "reader")
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda _: new_token(state, "reader"), range(40)))
    known = {found["id"] for found in veilset_here("token", "list", "--state", state, "--json").json_lines()}
    assert {token.split("_")[1] for token in tokens} <= known
    assert len(known) == 41
    assert json.loads((state / FILE_NAME).read_text())["version"] == 1
