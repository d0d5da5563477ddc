"""Certificates and keys in PEM files, checked before they are used, so that an error names the bad file.

TLS libraries report such faults late and vaguely, and wait at the terminal for the password of an encrypted key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from veilset._system import read_small
from veilset.errors import InvalidInput, must_be


def read_authorities(field: str, path: Path) -> bytes:
    """The bytes of a file of certificates to trust. Raises InvalidInput naming ``field``."""
    content = _read(field, path)
    _certificates(field, path, content)
    return content


def read_pair(
    cert_field: str, cert: Path, key_field: str, key: Path, now: datetime | None = None
) -> tuple[bytes, bytes]:
    """The bytes of a certificate chain's file and of its key's.

    Raises InvalidInput naming the field: a file is no PEM, the key is encrypted or of another certificate, or the certificate is
    not valid at ``now`` (default: the system's time).
    """
    chain, secret = _read(cert_field, cert), _read(key_field, key)
    own = _certificates(cert_field, cert, chain)[0]
    try:
        public = load_pem_private_key(secret, password=None).public_key()
    except TypeError:
        raise InvalidInput(
            key_field, f"{key_field} {key} is encrypted; give a private key without a passphrase"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise must_be(key_field, "a private key in PEM form", str(key)) from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*form) != own.public_key().public_bytes(*form):
        raise InvalidInput(key_field, f"{key_field} {key} does not belong to the certificate in {cert}")
    now = now or datetime.now(UTC)
    if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
        span = f"{own.not_valid_before_utc:%Y-%m-%d %H:%M} to {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        raise InvalidInput(cert_field, f"{cert_field} {cert} is not valid now, only from {span}")
    return chain, secret


def _read(field: str, path: Path) -> bytes:
    try:
        return read_small(path)
    except OSError as error:
        raise InvalidInput(field, f"{field} {path} cannot be read: {error.strerror}") from None


def _certificates(field: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise must_be(field, "certificates in PEM form", str(path)) from None
