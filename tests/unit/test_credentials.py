"""Recognising callers: what fails is one answer and counts; what is right is let in; plain text from afar is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.tokens import new_token, revoke
from veilset.errors import InvalidInput, LimitExceeded, StateCorrupted, Unauthenticated, Unavailable
from veilset_server.principals import EVERYBODY, AuthMode, Principal
from veilset_server.rpc.credentials import Connection, Credentials
from veilset_server.state.entropy import SystemClock
from veilset_server.state.tokens import FILE_NAME, make_token, make_token_id

FAILURES = (Unauthenticated, LimitExceeded)


def credentials(
    folder: Path, mode: AuthMode = AuthMode.AUTO, identities: Path | None = None, **more: bool
) -> Credentials:
    """As the service makes them."""
    return Credentials(mode, folder, identities, SystemClock(), failed_per_minute=20, **more)


def call(
    *authorization: str,
    address: str = "192.0.2.1",
    private: bool = True,
    certificate: Mapping[str, list[bytes]] | None = None,
) -> Connection:
    """A call from an address, with these authorization headers."""
    return Connection(f"ipv4:{address}:1", private, certificate or {}, authorization)


def recognised(known: Credentials, connection: Connection) -> Principal | str:
    """The caller, or the kind of the refusal."""
    try:
        return known.recognise(connection)
    except (*FAILURES, Unavailable) as refusal:
        return refusal.reason


def test_a_right_token_is_let_in(tmp_path: Path) -> None:
    """The scheme's name in any case, as HTTP has it."""
    token = new_token(tmp_path, "reader", name="me")
    known = credentials(tmp_path)
    for header in (f"Bearer {token}", f"bearer {token}"):
        assert known.recognise(call(header)).name == "me"


def test_every_failure_is_the_same_answer(tmp_path: Path) -> None:
    """Two headers, other schemes and no header included."""
    token = new_token(tmp_path, "reader")
    ended = new_token(tmp_path, "reader", seconds=0)
    revoked = new_token(tmp_path, "reader")
    revoke(tmp_path, revoked)
    known = credentials(tmp_path)
    texts = set()
    for headers in (
        (),
        ("",),
        (token,),
        (f"Basic {token}",),
        (f"Bearer  {token}",),
        (f"Bearer {token} ",),
        (f"Bearer {token}", f"Bearer {token}"),
        (f"Bearer {ended}",),
        (f"Bearer {revoked}",),
        (f"Bearer {make_token(make_token_id())}",),
        (f"Bearer {make_token(token.split('_')[1])}",),
    ):
        with pytest.raises(Unauthenticated) as refusal:
            known.recognise(call(*headers))
        texts.add((refusal.value.message, str(refusal.value.details)))
    assert len(texts) == 1


def test_failures_are_limited_by_address_and_a_right_token_is_not(tmp_path: Path) -> None:
    """Ten thousand guesses: twenty are answered, the others have to wait; a caller of the same address with a right token
    comes in all the same, and other addresses are not touched."""
    token = new_token(tmp_path, "reader", name="me")
    known = credentials(tmp_path)
    wrong = [f"Bearer {make_token(token.split('_')[1])}" for _ in range(10_000)]
    answers = [recognised(known, call(guess)) for guess in wrong]
    assert set(answers) == {"UNAUTHENTICATED", "LIMIT_EXCEEDED"}
    assert 20 <= answers.count("UNAUTHENTICATED") <= 25  # a few more come in while the others are tried
    assert known.recognise(call(f"Bearer {token}")).name == "me"
    assert recognised(known, call(wrong[0], address="192.0.2.2")) == "UNAUTHENTICATED"
    with pytest.raises(LimitExceeded, match="failed_attempts_per_minute = 20"):
        known.recognise(call(wrong[0]))


def test_plain_text_from_another_machine_is_refused(tmp_path: Path) -> None:
    """Right or wrong, the token was read on the way; said explicitly, it is taken."""
    token = new_token(tmp_path, "reader", name="me")
    for header in (f"Bearer {token}", "Bearer x"):
        with pytest.raises(Unauthenticated, match="plain text"):
            credentials(tmp_path).recognise(call(header, private=False))
    assert credentials(tmp_path, insecure=True).recognise(call(f"Bearer {token}", private=False)).name == "me"


def test_off_until_there_is_a_file(tmp_path: Path) -> None:
    """And never off again while it runs; --auth none is off whatever there is, --auth token on."""
    known = credentials(tmp_path)
    assert known.recognise(call()) == EVERYBODY
    assert recognised(credentials(tmp_path, AuthMode.TOKEN), call("Bearer x")) == "UNAUTHENTICATED"
    new_token(tmp_path, "reader")
    assert recognised(known, call()) == "UNAUTHENTICATED"
    assert credentials(tmp_path, AuthMode.NONE).recognise(call()) == EVERYBODY
    (tmp_path / FILE_NAME).unlink()
    assert recognised(known, call()) == "UNAUTHENTICATED"


def test_a_damaged_file_is_no_start(tmp_path: Path) -> None:
    """Neither of tokens nor of identities; with ``--auth none`` it is not read."""
    (tmp_path / FILE_NAME).write_bytes(b"{}")
    for mode in (AuthMode.AUTO, AuthMode.TOKEN):
        with pytest.raises(StateCorrupted):
            credentials(tmp_path, mode)
    assert credentials(tmp_path, AuthMode.NONE).recognise(call()) == EVERYBODY
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / "identities").write_text("nonsense")
    with pytest.raises(InvalidInput):
        credentials(tmp_path, identities=tmp_path / "identities")


def test_certificates_are_recognised(tmp_path: Path) -> None:
    """Where a file gives them names; a wrong token beside a right certificate is a wrong token."""
    file = tmp_path / "identities"
    entry = '[[identity]]\ncertificate = "CN:crm"\nname = "crm"\nroles = ["producer"]\nsets = ["a*"]\n'
    file.write_text(entry)
    known = credentials(tmp_path, identities=file)
    crm = {"x509_common_name": [b"crm"]}
    assert known.recognise(call(certificate=crm)).name == "crm"
    assert recognised(known, call(certificate={"x509_common_name": [b"other"]})) == "UNAUTHENTICATED"
    assert recognised(known, call()) == "UNAUTHENTICATED"
    assert recognised(known, call("Bearer x", certificate=crm)) == "UNAUTHENTICATED"
    connection = call(certificate=crm)
    file.write_text(entry.replace("CN:crm", "CN:other-crm"))
    with pytest.raises(Unauthenticated):
        known.check_again(connection)
    file.write_text("nonsense")
    assert recognised(known, connection) == "UNAVAILABLE"
    file.unlink()
    assert recognised(known, connection) == "UNAVAILABLE"
