"""Certificates and keys that cannot work are refused with the option that named them, before any handshake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from harness.certificates import Authority, Certificates
from veilset._service.pem import read_authorities, read_pair
from veilset.errors import InvalidInput


def _encrypt(pair: Certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    pair.key.write_bytes(key.private_bytes(*form))


def _make_folder(pair: Certificates) -> None:
    pair.key.unlink()
    pair.key.mkdir()


FAULTS: dict[str, tuple[Callable[[Certificates, Authority], object], str, str]] = {
    "no certificate": (lambda pair, ca: pair.certificate.unlink(), "cert", "No such file"),
    "no key": (lambda pair, ca: pair.key.unlink(), "key", "No such file"),
    "a folder": (lambda pair, ca: _make_folder(pair), "key", "directory"),
    "an empty certificate": (lambda pair, ca: pair.certificate.write_bytes(b""), "cert", "PEM"),
    "a cut certificate": (
        lambda pair, ca: pair.certificate.write_bytes(pair.certificate.read_bytes()[:99]),
        "cert",
        "PEM",
    ),
    "a cut key": (lambda pair, ca: pair.key.write_bytes(pair.key.read_bytes()[:99]), "key", "PEM"),
    "exchanged": (lambda pair, ca: pair.key.write_bytes(pair.certificate.read_bytes()), "key", "PEM"),
    "an encrypted key": (lambda pair, ca: _encrypt(pair), "key", "is encrypted"),
    "another's key": (lambda pair, ca: pair.key.write_bytes(ca.issue("other").key.read_bytes()), "key", "to the cert"),
    "an expired certificate": (
        lambda pair, ca: ca.issue(age=timedelta(days=2), lifetime=timedelta(days=1)),
        "cert",
        "valid now",
    ),
    "a certificate of tomorrow": (lambda pair, ca: ca.issue(age=timedelta(days=-1)), "cert", "valid now"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_work_is_named(fault: str, tmp_path: Path) -> None:
    """Field, file and what would be right."""
    authority = Authority(tmp_path)
    pair = authority.issue()
    read_pair("cert", pair.certificate, "key", pair.key)
    break_it, field, text = FAULTS[fault]
    break_it(pair, authority)
    with pytest.raises(InvalidInput, match=text) as refused:
        read_pair("cert", pair.certificate, "key", pair.key)
    assert refused.value.field == field
    assert str(pair.certificate if field == "cert" else pair.key) in refused.value.message


def test_authorities_are_read_and_checked(tmp_path: Path) -> None:
    """Several may stand in one file, which is how one is replaced by another without a gap."""
    one, other = Authority(tmp_path, "one"), Authority(tmp_path, "other")
    both = tmp_path / "both.pem"
    both.write_bytes(one.certificate.read_bytes() + other.certificate.read_bytes())
    assert read_authorities("ca", both) == both.read_bytes()
    for content in (b"", b"no certificate", one.issue().key.read_bytes()):
        both.write_bytes(content)
        with pytest.raises(InvalidInput, match="PEM") as refused:
            read_authorities("ca", both)
        assert refused.value.field == "ca"
