"""Certificate authorities of the test's own, and certificates by them: for localhost, for clients, too old ones."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, a certificate that it signed, and the key of that."""

    authority: Path
    certificate: Path
    key: Path

    def serving(self) -> tuple[str | Path, ...]:
        """Options of ``veilset serve`` for TLS with them."""
        return ("--tls-cert", self.certificate, "--tls-key", self.key)


class Authority:
    """A certificate authority; its own certificate is ``folder``/NAME.pem."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.certificate = folder / f"{name}.pem"
        self._folder = folder
        self._name = f"veilset test {name}"
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(self._name, self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Python 3.13 checks strictly: an authority says what its key is for, and a certificate whose key signed it.
        made = made.add_extension(_may_sign_certificates(), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str = "server",
        *,
        common_name: str = "localhost",
        alternative_names: Sequence[str] = ("localhost", "127.0.0.1"),
        age: timedelta = timedelta(hours=1),
        lifetime: timedelta = timedelta(days=1),
    ) -> Certificates:
        """NAME.pem and NAME.key, in the place of earlier ones: first valid ``age`` ago, for ``lifetime``.

        alternative_names: those with :// become URIs, addresses addresses, others DNS names.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(common_name, self._name, key.public_key(), age, lifetime)
        names = x509.SubjectAlternativeName([_alternative_name(text) for text in alternative_names])
        made = made.add_extension(names, critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        found = Certificates(self.certificate, self._folder / f"{name}.pem", self._folder / f"{name}.key")
        found.certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return found


def make_certificates(folder: Path) -> Certificates:
    """An authority and a server certificate for localhost in ``folder``, valid for a day."""
    return Authority(folder).issue()


def _alternative_name(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _may_sign_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    age: timedelta = timedelta(hours=1),
    lifetime: timedelta = timedelta(days=1),
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - age
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
