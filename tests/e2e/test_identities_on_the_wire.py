"""Client certificates as identities: a real service with mTLS and a file of identities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import veilset
from harness.certificates import Authority, Certificates
from harness.programs import Finished
from harness.service_process import ServiceProcess
from harness.tokens import new_token
from veilset._service.service import Service
from veilset.errors import PermissionDenied, Unauthenticated

BATCH = 1 << 16
"""Elements that a producer sends at a time."""
IDENTITIES = """
[[identity]]
certificate = "URI:spiffe://example.org/crm"
name = "crm"
roles = ["producer"]
sets = ["customers-*"]

[[identity]]
certificate = "CN:ops"
name = "ops"
roles = ["admin"]
sets = ["*"]
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs the server's and the clients' certificates."""
    return Authority(tmp_path)


def connect(service: ServiceProcess, client: Certificates, token: str | None = None) -> Service:
    """With a client certificate."""
    address = service.address.replace("127.0.0.1", "localhost")
    return veilset.connect(address, ca=client.authority, cert=client.certificate, key=client.key, token=token)


def test_certificates_carry_roles(
    authority: Authority, start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    """By URI, by common name; a certificate of the same authority that nobody named is let in to nothing; a token beside a
    certificate is what counts; the file may change while the service runs."""
    file = tmp_path / "identities.toml"
    file.write_text(IDENTITIES)
    crm = authority.issue("crm", common_name="anything", alternative_names=["spiffe://example.org/crm"])
    ops = authority.issue("ops", common_name="ops", alternative_names=["ops.example.org"])
    unknown = authority.issue("unknown", common_name="unknown", alternative_names=["ops", "crm"])
    service = start_service(*authority.issue().serving(), "--client-ca", authority.certificate, "--identities", file)
    with connect(service, ops) as connection:
        for name in ("customers-1", "other"):
            connection.create_set(name, size=1000, epsilon=2, adjacency="add-remove")
    with connect(service, crm) as connection:
        assert connection.add("customers-1", ["a", "b"]).elements == 2
        assert [found.name for found in connection.list_sets()] == ["customers-1"]
        with pytest.raises(PermissionDenied):
            connection.add("other", ["a"])
        with pytest.raises(PermissionDenied):
            connection.publish("customers-1")
    with connect(service, crm) as connection:
        sent = iter(range(3))

        def narrowing() -> Iterator[str]:
            """After the first batch the file takes the set away."""
            yield from (f"element {number}" for number in range(BATCH))
            next(sent)
            file.write_text(IDENTITIES.replace("customers-*", "others-*"))
            yield from (f"element {number}" for number in range(BATCH, 2 * BATCH))

        with pytest.raises(PermissionDenied):
            connection.add("customers-1", narrowing())
        assert next(sent) == 1
        file.write_text(IDENTITIES)
    with connect(service, unknown) as connection, pytest.raises(Unauthenticated):
        list(connection.list_sets())
    token = new_token(service.state, "reader")
    with connect(service, unknown, token) as connection:
        assert len(list(connection.list_sets())) == 2
    with connect(service, ops, "vst_wrong") as connection, pytest.raises(Unauthenticated):
        list(connection.list_sets())
    file.write_text(IDENTITIES.replace("CN:ops", "CN:other"))
    with connect(service, ops) as connection, pytest.raises(Unauthenticated):
        list(connection.list_sets())


def test_identities_need_certificates(veilset_here: Callable[..., Finished], tmp_path: Path) -> None:
    """Without mTLS nobody could be recognised; with ``--auth none`` nobody would be asked."""
    file = tmp_path / "identities.toml"
    file.write_text(IDENTITIES)
    done = veilset_here("serve", "--state", tmp_path / "state", "--port", "0", "--identities", file)
    assert "identities needs client-ca" in done.complaint()
    assert not (tmp_path / "state").exists()
