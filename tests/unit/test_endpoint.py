"""Targets: what they mean, what is refused, and what never goes out in plain text."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilset._service.endpoint import Endpoint, bare_host, host_and_port, make_endpoint
from veilset.errors import InvalidInput

BEARER, SHORTER = "a-secret-bearer", "shorter"
LOCAL = [
    "localhost:50051",
    "[::ffff:127.0.0.1]:1",
    "127.0.0.1:1",
    "127.7.7.7:1",
    "[::1]:65535",
    "unix:/run/veilset.sock",
]
REMOTE = ["10.0.0.7:50051", "veilset.example.com:50051", "dns:///veilset.example.com:50051", "[2001:db8::1]:50051"]
DISGUISED = ["localhost.example.com:1", "127.0.0.1.example.com:1", "0.0.0.0:1", "[::]:1", "[::ffff:10.0.0.7]:1"]
MALFORMED = [
    *("", "localhost", "localhost:", ":50051", "localhost:0", "localhost:65536", "localhost:http", "localhost:٣"),
    *("http://localhost:1", "https://localhost:1", "tls://", "tls://localhost", "tls://user@localhost:1", "a b:1"),
    *("localhost:" + 5000 * "1", "::1:50051", "2001:db8::1", "[localhost]:1", "[::1]]:1", "[::1:1"),
]


@pytest.mark.parametrize("target", LOCAL)
def test_this_machine_is_reached_in_plain_text(target: str) -> None:
    """With a token too: nothing passes a network."""
    assert not make_endpoint(target, token=BEARER).tls


@pytest.mark.parametrize("target", [*REMOTE, *DISGUISED])
@pytest.mark.parametrize("token", [None, BEARER])
def test_another_machine_is_not(target: str, token: str | None) -> None:
    """Unless somebody says so; with TLS it is, and the refusal does not show the token."""
    with pytest.raises(InvalidInput, match="TLS") as refused:
        make_endpoint(target, token=token)
    assert refused.value.field == "server"
    assert "secret" not in refused.value.message
    assert not make_endpoint(target, token=token, insecure=True).tls
    assert make_endpoint(f"tls://{target}", token=token).tls
    assert make_endpoint(target, token=token, ca="ca.pem").tls
    assert make_endpoint(target, token=token, cert="cert.pem", key="key.pem").tls


@pytest.mark.parametrize("target", MALFORMED)
def test_a_malformed_target_is_refused_by_name(target: str) -> None:
    """Before anything is connected."""
    with pytest.raises(InvalidInput) as refused:
        make_endpoint(target, insecure=True)
    assert refused.value.field == "server"


def test_an_ipv6_address_stands_in_brackets_before_a_port() -> None:
    """With them or without, where it stands alone."""
    for host in ("::1", "2001:db8::1"):
        assert bare_host(f"[{host}]") == bare_host(host) == host
        assert host_and_port(host, 1) == f"[{host}]:1"
        assert make_endpoint(host_and_port(host, 1), insecure=True).host == host
    for host in ("localhost", "127.0.0.1", "[localhost]", ""):
        assert bare_host(host) == host
        assert host_and_port(host, 1) == f"{host}:1"


def test_the_parts_of_a_target() -> None:
    """The host is what the certificate has to name, the address what gRPC connects to."""
    found = make_endpoint("tls://[::1]:443")
    assert (found.address, found.host, found.port, str(found)) == ("[::1]:443", "::1", 443, "[::1]:443")
    found = make_endpoint("dns:///a.example:1", insecure=True)
    assert (found.address, found.host, found.port) == ("dns:///a.example:1", "a.example", 1)


def test_a_certificate_needs_its_key() -> None:
    """And a key its certificate."""
    for given in ({"cert": "c.pem"}, {"key": "k.pem"}):
        with pytest.raises(InvalidInput, match="cert and key"):
            make_endpoint("localhost:1", **given)  # type: ignore[arg-type]


def test_the_environment_gives_what_is_not_given(tmp_path: Path) -> None:
    """What is given comes first; a token before the file of one."""
    (tmp_path / "token").write_text("from-file\n")
    variables = {"VEILSET_CA_FILE": "ca.pem", "VEILSET_TOKEN_FILE": str(tmp_path / "token")}
    variables |= {"VEILSET_CERT_FILE": "cert.pem", "VEILSET_CERT_KEY_FILE": "key.pem"}
    found = make_endpoint("a.example:1", environment=variables)
    assert found == Endpoint(
        "a.example:1", "a.example", 1, True, Path("ca.pem"), Path("cert.pem"), Path("key.pem"), "from-file"
    )
    assert make_endpoint("a:1", environment=variables | {"VEILSET_TOKEN": SHORTER}).token == SHORTER
    assert make_endpoint("a:1", environment=variables, token=BEARER, ca="other.pem").token == BEARER
    assert make_endpoint("a:1", environment=variables, ca="other.pem").ca == Path("other.pem")
    empty = dict.fromkeys(variables, "")
    assert make_endpoint("localhost:1", environment=empty) == make_endpoint("localhost:1")


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff", "tökén".encode()])
def test_a_bad_token_is_refused_and_not_shown(content: bytes | None, tmp_path: Path) -> None:
    """Whether the file is missing, empty, or holds what no header can."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        make_endpoint("localhost:1", environment={"VEILSET_TOKEN_FILE": str(path)})
    assert refused.value.field in ("token", "token-file")
    assert "two" not in refused.value.message
    assert "two" not in str(refused.value.details)


def test_a_token_is_not_in_the_text_of_an_endpoint() -> None:
    """Which ends up in logs."""
    assert BEARER not in repr(make_endpoint("localhost:1", token=BEARER))
