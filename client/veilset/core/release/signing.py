"""Ed25519 signatures over release headers, and the manifest that carries both."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError

from veilset.core.release.header import ReleaseHeader, decode_header, encode_header
from veilset.errors import ReleaseRejected
from veilset.v1 import release_pb2 as pb

CONTEXT = b"veilset-release-v1\0"
MAX_SIGNATURES = 8
MAX_MANIFEST_BYTES = 6 << 20  # 2^40 bits have 2^17 chunks of 34 bytes each in the header


def key_id(public_key: bytes) -> str:
    """Name of a raw 32-byte public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def sign_header(header: ReleaseHeader, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    """Encode and sign a header with every key; returns the manifest (a serialized SignedHeader)."""
    encoded = encode_header(header)
    signatures = []
    for key in keys:
        public = key.public_key().public_bytes_raw()
        signature = key.sign(CONTEXT + encoded)
        signatures.append(pb.Signature(key_id=key_id(public), signature=signature, public_key=public))
    return pb.SignedHeader(header=encoded, signatures=signatures).SerializeToString(deterministic=True)


def open_manifest(manifest: bytes, pinned: Collection[bytes] = ()) -> ReleaseHeader:
    """Check a manifest and return its header.

    pinned: raw public keys that the reader trusts; one of them must have signed. With none pinned the signature only
    shows that the manifest is whole, not who made it. Raises ReleaseRejected.
    """
    try:
        signed = pb.SignedHeader.FromString(manifest)
    except DecodeError:
        raise ReleaseRejected("manifest: it is not a veilset manifest", check="format") from None
    if len(signed.signatures) > MAX_SIGNATURES:
        raise ReleaseRejected(f"manifest: it has more than {MAX_SIGNATURES} signatures", check="signature")
    if not any(_is_valid(signature, signed.header, pinned) for signature in signed.signatures):
        whom = "a pinned key" if pinned else "the key it names"
        raise ReleaseRejected(f"manifest: it has no valid signature by {whom}", check="signature")
    return decode_header(signed.header)


def valid_signers(manifest: bytes) -> tuple[bytes, ...]:
    """Raw public keys whose signatures over a manifest that `open_manifest` passed are valid, in the manifest's order."""
    signed = pb.SignedHeader.FromString(manifest)
    return tuple(
        signature.public_key for signature in signed.signatures if _is_valid(signature, signed.header, pinned=())
    )


def _is_valid(signature: pb.Signature, header: bytes, pinned: Collection[bytes]) -> bool:
    if pinned and signature.public_key not in pinned:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(signature.public_key).verify(signature.signature, CONTEXT + header)
    except (InvalidSignature, ValueError):
        return False
    return True
