"""The service with TLS: the main job, client certificates, new certificates while it runs, and what it refuses to start with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import veilset
from harness.certificates import Authority, Certificates
from harness.health import serves
from harness.programs import Finished, wait_until
from harness.programs import veilset as command
from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector
from veilset._service.endpoint import make_endpoint
from veilset.errors import InvalidInput, Unavailable
from veilset.v1.membership_pb2_grpc import MembershipServiceStub
from veilset_server.settings import Settings

ELEMENTS = [b"element %d" % number for number in range(300)]


@contextmanager
def secure_stub(address: str, certificates: Certificates) -> Iterator[MembershipServiceStub]:
    """A bare stub that trusts one authority only."""
    credentials = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
    with grpc.secure_channel(address, credentials) as channel:
        yield MembershipServiceStub(channel)


def answers(service: ServiceProcess, authority: Path) -> bool:
    """Whether a new connection that trusts ``authority`` finds the service."""
    try:
        return serves(make_endpoint(service.address, ca=authority))
    except Unavailable as error:
        if "was not signed by" not in error.message:
            raise
        return False


def events(service: ServiceProcess, name: str) -> int:
    """How often the log holds that event."""
    return sum(record["event"] == name for record in service.log_records())


def test_the_main_job_with_client_certificates(
    start_service: Callable[..., ServiceProcess],
    veilset_here: Callable[..., Finished],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the library and by the command line, options and environment alike; a caller without a certificate gets nothing."""
    authority = Authority(tmp_path)
    server, client = authority.issue(), authority.issue("client", common_name="a producer")
    service = start_service(*server.serving(), "--client-ca", authority.certificate)
    with veilset.connect(service.address, ca=authority.certificate, cert=client.certificate, key=client.key) as secure:
        shape = shape_of_set(secure.create_set("set", size=300, epsilon=2, adjacency="add-remove"))
        assert secure.add("set", ELEMENTS).elements == 300
        assert secure.publish("set").state == "published"
    assert raw_vector(service.state, "set") == expected_vector(shape, ELEMENTS)

    files = ("--ca", authority.certificate, "--cert", client.certificate, "--cert-key", client.key)
    settings = {
        "VEILSET_SERVER": service.address,
        "VEILSET_CA_FILE": str(authority.certificate),
        "VEILSET_CERT_FILE": str(client.certificate),
        "VEILSET_CERT_KEY_FILE": str(client.key),
    }
    assert veilset_here("sets", "--json", settings=settings).json_lines()[0]["name"] == "set"
    assert veilset_here("budget", "set", "--server", service.address, *files, "--json").json()["charges"] == 1
    assert veilset_here("health", "--server", service.address, *files).out == "serving\n"
    with monkeypatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        with veilset.connect(service.address) as secure:
            assert shape_of_set(secure.get_set("set")) == shape
    lacking = veilset_here("budget", "set", "--server", service.address, "--ca", authority.certificate)
    assert "asks for a client certificate" in lacking.complaint()
    assert lacking.code == 1
    plain = veilset_here("health", "--server", service.address)
    assert "it speaks TLS there" in plain.complaint()
    assert plain.code == 1


@pytest.mark.parametrize("by_signal", [True, False], ids=["SIGHUP", "files only"])
def test_new_certificates_are_taken_up_while_streams_go_on(
    by_signal: bool, start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    """A stream under the old certificate goes on to its end; new connections see the new one; a bad pair changes nothing."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    served = old.issue()
    service = start_service(*served.serving())

    def hang_up() -> None:
        """Tell the service, and return once it has looked."""
        before = events(service, "reading certificates and keys again")
        os.kill(service.pid, signal.SIGHUP)
        wait_until(lambda: events(service, "reading certificates and keys again") > before)

    with veilset.connect(service.address, ca=old.certificate) as connection:
        shape = shape_of_set(connection.create_set("set", size=300, epsilon=2, adjacency="add-remove"))
    with (
        secure_stub(service.address, served) as stub,
        RawUpload(stub, open_upload("set", "u"), raw_batch(1, ELEMENTS[:100])) as stream,
    ):
        stream.opened()
        assert stream.acknowledged() == (1, 100)

        served.key.write_bytes(new.issue("other").key.read_bytes())  # half of an exchange
        if by_signal:
            hang_up()
        assert answers(service, old.certificate)
        wait_until(lambda: events(service, "new certificate refused, the old one stays") == 1)
        assert answers(service, old.certificate)
        assert events(service, "new certificate refused, the old one stays") == 1, "once, not at every handshake"
        stream.send(raw_batch(2, ELEMENTS[100:200]))
        assert stream.acknowledged() == (2, 200)

        new.issue()
        if by_signal:
            hang_up()
        assert answers(service, new.certificate)
        assert not answers(service, old.certificate)
        stream.send(raw_batch(3, ELEMENTS[200:]), finish(300))
        assert stream.acknowledged() == (3, 300)
        assert stream.finished() == 300
    assert raw_vector(service.state, "set") == expected_vector(shape, ELEMENTS)


def test_a_new_client_authority_is_taken_up(start_service: Callable[..., ServiceProcess], tmp_path: Path) -> None:
    """And the clients of the old one are let in no more, so that a whole authority can be revoked."""
    own, old, new = (Authority(tmp_path, name) for name in ("own", "old", "new"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.certificate.read_bytes())
    service = start_service(*own.issue().serving(), "--client-ca", trusted)
    first, second = old.issue("first"), new.issue("second")

    def lets_in(client: Certificates) -> bool:
        try:
            return serves(make_endpoint(service.address, ca=own.certificate, cert=client.certificate, key=client.key))
        except Unavailable as error:
            if "client's certificate" not in error.message:
                raise
            return False

    assert (lets_in(first), lets_in(second)) == (True, False)
    trusted.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
    assert (lets_in(first), lets_in(second)) == (True, True)
    trusted.write_bytes(new.certificate.read_bytes())
    assert (lets_in(first), lets_in(second)) == (False, True)


def test_it_does_not_start_with_what_cannot_work(tmp_path: Path) -> None:
    """Each by the name of its option; no state folder is made."""
    authority = Authority(tmp_path)
    good, other = authority.issue("good"), authority.issue("other")
    faults: dict[str, tuple[str | Path, ...]] = {
        "tls-key": ("--tls-cert", good.certificate, "--tls-key", other.key),
        "client-ca": (*good.serving(), "--client-ca", good.key),
    }
    for field, options in faults.items():
        refused = command("serve", "--state", tmp_path / "state", "--port", "0", *options)
        assert refused.complaint().startswith(field), field
        assert refused.code == 2
        assert not (tmp_path / "state").exists(), field


def test_plain_text_to_another_machine_needs_saying_so(veilset_here: Callable[..., Finished]) -> None:
    """By the library and by every command that calls a service; nothing is connected before."""
    with pytest.raises(InvalidInput, match="TLS"):
        veilset.connect("192.0.2.1:50051")
    veilset.connect("192.0.2.1:50051", insecure=True).close()
    for arguments in (
        ("sets",),
        ("add", "set", "-"),
        ("publish", "set"),
        ("budget", "set"),
        ("health",),
        ("reconcile",),
    ):
        refused = veilset_here(*arguments, "--server", "192.0.2.1:50051")
        assert "not be encrypted; use TLS" in refused.complaint(), arguments
        assert refused.code == 2


def test_options_that_need_each_other() -> None:
    """A certificate its key, a client authority a certificate, an address that others reach TLS; told by name."""
    everywhere, state, file = "0.0.0.0", Path("state"), Path("file.pem")  # noqa: S104 - what is about to be refused
    refused: list[tuple[str, dict[str, Any]]] = [
        ("tls-key", {"tls_cert": file}),
        ("tls-cert", {"tls_key": file}),
        ("client-ca", {"client_ca": file}),
        ("host", {"host": everywhere}),
        ("host", {"host": "veilset.example.com"}),
    ]
    for field, options in refused:
        with pytest.raises(InvalidInput) as error:
            Settings(state, **options)
        assert error.value.field == field
    for options in ({"tls_cert": file, "tls_key": file}, {"insecure": True}):
        assert Settings(state, host=everywhere, **options).host == everywhere
