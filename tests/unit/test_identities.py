"""Certificates' names to principals, and what connections count as one address or as private."""

from __future__ import annotations

import pytest

from veilset.errors import InvalidInput
from veilset_server.principals import Principal, Role
from veilset_server.rpc.credentials import Connection, find_identity, parse_identities

GOOD = """
[[identity]]
certificate = "URI:spiffe://example.org/crm"
name = "crm"
roles = ["producer"]
sets = ["customers-*"]

[[identity]]
certificate = "CN:ops"
name = "ops"
roles = ["admin", "reader"]
sets = ["*"]
"""


def test_the_first_name_that_is_known_counts() -> None:
    """URIs before DNS names, e-mail addresses and the common name; kinds are not mixed up."""
    identities = parse_identities(GOOD.encode())
    both = {"peer_uri": [b"spiffe://other", b"spiffe://example.org/crm"], "x509_common_name": [b"ops"]}
    found = find_identity(identities, both)
    assert found is not None
    assert found == Principal("crm", frozenset({Role.PRODUCER}), ("customers-*",))
    ops = find_identity(identities, {"x509_common_name": [b"ops"]})
    assert ops is not None
    assert ops.roles == {Role.ADMIN, Role.READER}
    for unknown in (
        {},
        {"peer_dns": [b"ops"]},
        {"x509_common_name": [b"spiffe://example.org/crm"]},
        {"x509_common_name": [b"OPS", b"ops ", b"\xff"]},
        {"x509_subject_alternative_name": [b"ops"]},
    ):
        assert find_identity(identities, unknown) is None


def test_an_empty_file_is_one_that_knows_nobody() -> None:
    """So that the last identity can be taken out."""
    assert parse_identities(b"") == {}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("certificate = ", "certificates = "), "entry 1 must be a table of certificate, name, roles, sets"),
        (("URI:", "IP:"), "entry 1: certificate must be one of URI, DNS, EMAIL, CN"),
        (("URI:spiffe://example.org/crm", "URI:"), "entry 1: certificate must be"),
        (("URI:spiffe://example.org/crm", "CN:ops"), "entry 2: certificate CN:ops is in an earlier entry too"),
        (('"producer"', '"owner"'), "entry 1: role must be"),
        (('["producer"]', "[]"), "entry 1: role must be"),
        (('["producer"]', '"producer"'), "entry 1: roles must be a list"),
        (('["customers-*"]', '["Customers"]'), "entry 1: sets must be"),
        (('["customers-*"]', "[1]"), "entry 1: sets must be"),
        (('"crm"\n', '"c/m"\n'), "entry 1: name must be"),
        (('"crm"\n', "1\n"), "entry 1: name must be a text"),
        (("[[identity]]", "[identity]"), "must be a"),
        (("[[identity]]", "[[identities]]"), "must be a file of"),
        (("roles", "roles ="), "must be a TOML file"),
    ],
)
def test_a_mistake_is_named(change: tuple[str, str], complaint: str) -> None:
    """By the number of its entry and the key; nothing of a file with one is used."""
    assert change[0] in GOOD
    with pytest.raises(InvalidInput) as refusal:
        parse_identities(GOOD.replace(*change, 1).encode())
    assert complaint in refusal.value.message


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:4567", "10.1.2.3"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:4567", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2::1]:4567", "2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("unix:/run/veilset.sock", "unix"),
        ("unknown", "unknown"),
    ],
)
def test_an_address_is_one_host(peer: str, address: str) -> None:
    """Whatever port it comes from, and whichever of its many IPv6 addresses."""
    assert Connection(peer, True, {}, ()).address == address


def test_a_connection_does_not_show_its_token() -> None:
    """Not even in its printed form."""
    assert "vst_" not in repr(Connection("ipv4:1.2.3.4:5", True, {}, ("Bearer vst_1",)))
