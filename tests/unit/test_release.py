"""Headers, manifests and chunks: what was written is read back, and nothing else is accepted."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.releases import hash_chunks
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.params import (
    Adjacency,
    Calibration,
    HashParameters,
    HashScheme,
    Normalization,
    PrivacyParameters,
)
from veilset.core.release.header import (
    NoisyCount,
    ReleaseHeader,
    check_chunk,
    chunk_sizes,
    decode_header,
    encode_header,
    split_chunks,
)
from veilset.core.release.signing import MAX_SIGNATURES, key_id, open_manifest, sign_header, valid_signers
from veilset.errors import ReleaseRejected
from veilset.v1 import release_pb2

VECTOR = np.arange(1000, dtype=np.uint32).view(np.uint8)
HEADER = ReleaseHeader(
    set_name="customers",
    sequence=3,
    hashing=HashParameters(HashScheme.MMH3, 7),
    encoding=BloomParameters(8 * len(VECTOR), 2, 1 << 62, 4),
    privacy=PrivacyParameters(3.0, 1e-9, Adjacency.ADD_REMOVE, Calibration.EXACT, 2, 10),
    normalization=Normalization.EMAIL,
    capacity=1000,
    created_at_us=1_700_000_000_000_000,
    chunk_sha256=hash_chunks(split_chunks(VECTOR)),
    total_nano_epsilon=9_000_000_000,
    total_delta="3e-9",
    limit_nano_epsilon=12_000_000_000,
    limit_delta="1e-8",
    count=NoisyCount(-2, "laplace", 1.0, 2, 0.5, 0.0),
)
KEY = Ed25519PrivateKey.generate()


def test_header_round_trip() -> None:
    assert decode_header(encode_header(HEADER)) == HEADER
    assert decode_header(encode_header(replace(HEADER, count=None, shared_seed=True))).count is None


def test_header_bytes_are_deterministic() -> None:
    assert encode_header(HEADER) == encode_header(decode_header(encode_header(HEADER)))


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"format_version": 2}, "format_version"),
        ({"set_name": "../x"}, "set_name"),
        ({"sequence": 0}, "sequence"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 10**13}, "capacity"),
        ({"vector_bytes": 3999}, "vector_bytes"),
        ({"chunk_bytes": 1}, "chunk_bytes"),
        ({"chunk_sha256": [b"\0" * 32] * 2}, "chunk_sha256"),
        ({"chunk_sha256": [b"\0" * 31]}, "chunk_sha256"),
        ({"normalization": 99}, "normalization"),
        ({"total_delta": "lots"}, "total_delta"),
        ({"limit_delta": "lots"}, "limit_delta"),
        ({"limit_delta": "2e-9"}, "limit_delta"),
        ({"limit_nano_epsilon": 8_999_999_999}, "limit_nano_epsilon"),
        ({"created_at_us": -1}, "created_at_us"),
        ({"created_at_us": 2**63 - 1}, "created_at_us"),
    ],
)
def test_inconsistent_headers_are_rejected_by_name(change: dict[str, object], check: str) -> None:
    message = release_pb2.ReleaseHeader.FromString(encode_header(HEADER))
    for name, value in change.items():
        if isinstance(value, list):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    with pytest.raises(ReleaseRejected) as caught:
        decode_header(message.SerializeToString())
    assert caught.value.details["check"] == check


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits", 1 << 60),
        ("bits", 7),
        ("hashes", 0),
        ("hashes", 10**9),
        ("flip_threshold", 0),
        ("flip_threshold", (1 << 63) + 1),
        ("changed_bits", 0),
    ],
)
def test_hostile_encodings_are_rejected(field: str, value: int) -> None:
    message = release_pb2.ReleaseHeader.FromString(encode_header(HEADER))
    setattr(message.encoding.bloom, field, value)
    with pytest.raises(ReleaseRejected):
        decode_header(message.SerializeToString())


def test_an_unknown_encoding_is_refused_by_its_name() -> None:
    message = release_pb2.ReleaseHeader.FromString(encode_header(HEADER))
    message.encoding.other.family = "cuckoo"
    with pytest.raises(ReleaseRejected, match=r"encoding must be one of bloom.*cuckoo"):
        decode_header(message.SerializeToString())
    message.encoding.Clear()
    with pytest.raises(ReleaseRejected, match="encoding"):
        decode_header(message.SerializeToString())


def test_a_hostile_hash_scheme_is_rejected() -> None:
    message = release_pb2.ReleaseHeader.FromString(encode_header(HEADER))
    message.hashing.scheme = 9  # type: ignore[assignment]
    with pytest.raises(ReleaseRejected):
        decode_header(message.SerializeToString())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", 1e200),
        ("scale", 0.0),
        ("epsilon", -0.9),
        ("epsilon", float("nan")),
        ("delta", 5.0),
        ("sensitivity", 1),
        ("mechanism", "x"),
    ],
)
def test_hostile_counts_are_rejected(field: str, value: object) -> None:
    message = release_pb2.ReleaseHeader.FromString(encode_header(HEADER))
    setattr(message.count, field, value)
    with pytest.raises(ReleaseRejected) as caught:
        decode_header(message.SerializeToString())
    assert caught.value.details["check"] == "count"


def test_too_many_signatures_are_refused_before_any_is_checked() -> None:
    signed = release_pb2.SignedHeader.FromString(sign_header(HEADER, [KEY]))
    signed.signatures.extend([signed.signatures[0]] * MAX_SIGNATURES)
    with pytest.raises(ReleaseRejected, match="more than"):
        open_manifest(signed.SerializeToString())


@given(st.binary(max_size=300))
def test_garbage_is_rejected_not_crashed_on(data: bytes) -> None:
    with pytest.raises(ReleaseRejected):
        decode_header(data)
    with pytest.raises(ReleaseRejected):
        open_manifest(data)


def test_manifest_opens_with_any_pinned_signer() -> None:
    other = Ed25519PrivateKey.generate()
    manifest = sign_header(HEADER, [KEY, other])
    for key in (KEY, other):
        assert open_manifest(manifest, [key.public_key().public_bytes_raw()]) == HEADER
    assert open_manifest(manifest) == HEADER


def test_a_foreign_signature_is_refused_where_a_key_is_pinned() -> None:
    foreign = Ed25519PrivateKey.generate()
    with pytest.raises(ReleaseRejected, match="pinned"):
        open_manifest(sign_header(HEADER, [foreign]), [KEY.public_key().public_bytes_raw()])


def test_every_flipped_byte_of_a_manifest_is_refused() -> None:
    """S6: with a pinned key no single changed byte passes, wherever it lies, unless it leaves header and signature."""
    manifest = sign_header(HEADER, [KEY])
    pinned = [KEY.public_key().public_bytes_raw()]
    for index in range(len(manifest)):
        changed = bytearray(manifest)
        changed[index] ^= 0x41
        try:
            header = open_manifest(bytes(changed), pinned)
        except ReleaseRejected:
            continue
        assert header == HEADER, "a change that passes must be of something unsigned, such as the key's name"


def test_only_valid_signers_are_named() -> None:
    """A manifest may carry signatures that are none: what lists the signers names the valid ones only."""
    other = Ed25519PrivateKey.generate()
    keys = [key.public_key().public_bytes_raw() for key in (KEY, other)]
    assert list(valid_signers(sign_header(HEADER, [KEY, other]))) == keys
    signed = release_pb2.SignedHeader.FromString(sign_header(HEADER, [KEY, other]))
    signed.signatures[1].signature = signed.signatures[0].signature
    assert open_manifest(signed.SerializeToString()) == HEADER
    assert list(valid_signers(signed.SerializeToString())) == keys[:1]


def test_key_id_names_the_raw_key() -> None:
    assert key_id(b"\0" * 32) == "66687aadf862bd77"


@settings(max_examples=20)
@given(st.integers(1, 3 * CHUNK_BYTES))
def test_chunk_sizes_add_up(length: int) -> None:
    sizes = chunk_sizes(length)
    assert sum(sizes) == length
    assert all(size == CHUNK_BYTES for size in sizes[:-1])
    assert 1 <= sizes[-1] <= CHUNK_BYTES


def test_chunks_are_checked_for_length_and_content() -> None:
    chunk = VECTOR.tobytes()
    assert check_chunk(HEADER, 0, chunk) == chunk
    with pytest.raises(ReleaseRejected, match="3999 bytes"):
        check_chunk(HEADER, 0, chunk[:-1])
    with pytest.raises(ReleaseRejected, match="hash"):
        check_chunk(HEADER, 0, chunk[:-1] + b"x")
