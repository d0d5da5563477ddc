"""Releases that are well signed and wrong: what a hostile signer, or one that is broken, might show a reader."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from harness.releases import SIGNER, hash_chunks, release_bytes
from harness.shapes import FilterParameters
from veilset._reader.sources import read_manifest, write_release
from veilset.core.release.signing import CONTEXT, key_id
from veilset.v1 import release_pb2 as pb

SHAPE = FilterParameters(16_384, 3, seed=11)


def forge(data: bytes, change: Callable[[pb.ReleaseHeader], object], bits: bytes | None = None) -> bytes:
    """A release file with its header changed, with other ``bits`` and their hash if given, and signed again."""
    file = io.BytesIO(data)
    signed = pb.SignedHeader.FromString(read_manifest(file))
    header = pb.ReleaseHeader.FromString(signed.header)
    if bits is None:
        bits = file.read()
    else:
        del header.chunk_sha256[:]
        header.chunk_sha256.extend(hash_chunks([bits]))
    change(header)
    encoded = header.SerializeToString(deterministic=True)
    public = SIGNER.public_key().public_bytes_raw()
    signature = pb.Signature(key_id=key_id(public), signature=SIGNER.sign(CONTEXT + encoded), public_key=public)
    out = io.BytesIO()
    write_release(out, pb.SignedHeader(header=encoded, signatures=[signature]).SerializeToString(), [bits])
    return out.getvalue()


def hostile_releases() -> Iterator[tuple[str, bytes]]:
    """S8: name → a release that is signed and made to hurt: to allocate, to loop, to divide by zero, to read past the end."""
    good = release_bytes([f"user{number}" for number in range(100)], SHAPE, 4.0)
    shapes: dict[str, tuple[object, ...]] = {
        "bits": (0, 1, 7, 2**40 + 1, 2**60, 2**64 - 1),
        "hashes": (0, 33, 10**9, 2**32 - 1),
        "flip_threshold": (0, 2**63 + 1, 2**64 - 1),
        "changed_bits": (0,),
        "scheme": (99,),
    }
    for field, values in shapes.items():
        for value in values:
            yield f"{field} {value}", forge(good, lambda h, f=field, v=value: setattr(_place(h, f), f, v))  # type: ignore[misc]
    fields: dict[str, tuple[object, ...]] = {
        "format_version": (0, 2, 2**32 - 1),
        "set_name": ("", "../x", "a:b", "a" * 64),
        "sequence": (0,),
        "capacity": (0, 2**63),
        "created_at_us": (-1, 2**63 - 1),
        "chunk_bytes": (0, 1, 2**32 - 1),
        "vector_bytes": (0, 1, 2**60),
        "total_delta": ("", "x", "nan", "9" * 100_000),
        "limit_delta": ("", "x", "nan", "9" * 100_000),
        "limit_nano_epsilon": (0,),
    }
    for field, values in fields.items():
        for value in values:
            yield f"{field} {str(value)[:20]}", forge(good, lambda h, f=field, v=value: setattr(h, f, v))  # type: ignore[misc]
    promises: dict[str, tuple[object, ...]] = {
        "epsilon": (float("nan"), 65.0),
        "delta": (0.5,),
        "min_size": (2**64 - 1,),
    }
    for field, values in promises.items():
        for value in values:
            yield f"{field} {value}", forge(good, lambda h, f=field, v=value: setattr(h.privacy, f, v))  # type: ignore[misc]
    yield "no hash", forge(good, lambda h: h.ClearField("chunk_sha256"))
    yield "many hashes", forge(good, lambda h: h.chunk_sha256.extend([bytes(32)] * 1000))
    yield "short hash", forge(good, lambda h: h.chunk_sha256.__setitem__(0, b"x"))
    yield "one byte less", forge(good, lambda h: None, bytes(SHAPE.vector_bytes - 1))
    yield "no bits", forge(good, lambda h: None, b"")
    yield "a gigabyte that is not there", forge(good, _claim_a_gigabyte)


def _place(header: pb.ReleaseHeader, field: str) -> object:
    """The message that has the field."""
    return header.hashing if field == "scheme" else header.encoding.bloom


def _claim_a_gigabyte(header: pb.ReleaseHeader) -> None:
    header.encoding.bloom.bits, header.vector_bytes = 2**33, 2**30
    header.chunk_sha256.extend([bytes(32)] * 1023)
