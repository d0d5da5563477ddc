"""The longest vector, 2^40 bits: its manifest goes through every limit on its way."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness.shapes import FilterParameters, parameters
from veilset._reader.sources import read_manifest, write_release
from veilset._service.channel import _OPTIONS
from veilset.core import compiled
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.vectors import positions
from veilset.core.encodings.interface import CHUNK_BYTES, count_ones
from veilset.core.params import MAX_BITS, Adjacency, Normalization, PrivacyParameters
from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import MAX_MANIFEST_BYTES, MAX_SIGNATURES, open_manifest, sign_header

SHAPE = FilterParameters(MAX_BITS, 32, seed=7)
PRIVACY = PrivacyParameters(3.0, 0.0, Adjacency.ADD_REMOVE)


def test_the_longest_manifest_passes() -> None:
    """131,072 hashes and as many signatures as are taken: through Redis, a file, and gRPC to veilset's clients."""
    header = ReleaseHeader(
        set_name="x" * 63,
        sequence=1 << 62,
        hashing=SHAPE.hashing,
        encoding=parameters(SHAPE.bits, SHAPE.hashes, PRIVACY),
        privacy=PRIVACY,
        normalization=Normalization.EMAIL,
        capacity=10**12,
        created_at_us=1_700_000_000_000_000,
        chunk_sha256=tuple(hashlib.sha256(bytes([i % 256])).digest() for i in range(MAX_BITS // 8 // CHUNK_BYTES)),
        total_nano_epsilon=1 << 60,
        total_delta="1e-9",
        limit_nano_epsilon=1 << 60,
        limit_delta="1",
    )
    keys = [Ed25519PrivateKey.generate() for _ in range(MAX_SIGNATURES)]
    manifest = sign_header(header, keys)
    assert len(manifest) <= MAX_MANIFEST_BYTES
    assert len(manifest) < dict(_OPTIONS)["grpc.max_receive_message_length"]
    assert open_manifest(manifest, [keys[-1].public_key().public_bytes_raw()]) == header
    file = io.BytesIO()
    write_release(file, manifest, [])
    file.seek(0)
    assert read_manifest(file) == manifest


@pytest.mark.parametrize("kernel", [False, True])
def test_bits_of_the_longest_vector_are_set_where_they_belong(
    kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sparse file of 128 GiB, by NumPy and by the compiled kernel where it can be had."""
    if kernel:
        pytest.importorskip("numba")
    path = tmp_path / "vector"
    with path.open("wb") as file:
        file.truncate(SHAPE.vector_bytes)
    vector = np.memmap(path, dtype=np.uint8, mode="r+")
    hashed = digests([b"element %d" % number for number in range(100)], seed=7)
    if kernel:
        from veilset.core.kernels import bloom as kernels

        kernels.insert(vector, compiled.read_only(hashed), MAX_BITS, 2)
    else:
        monkeypatch.setattr(compiled, "kernels", lambda saved=0.0: None)
        vectors.insert(vector, MAX_BITS, 2, hashed)
    expected = np.unique(positions(hashed, MAX_BITS, 2))
    assert int(expected.max()) > MAX_BITS * 0.9
    assert vectors.test_bits(vector, expected).all()
    pages = np.unique(expected // np.uint64(8 * 4096)).astype(np.int64)
    assert sum(count_ones(vector[page * 4096 : (page + 1) * 4096]) for page in pages) == len(expected)


def test_positions_reach_the_last_chunk() -> None:
    """A hundred thousand of them lie in every 256th part of the vector, and none outside of it."""
    hashed = np.random.default_rng(5).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    found = positions(hashed, MAX_BITS, 1).ravel()
    assert int(found.max()) < MAX_BITS
    assert len(np.unique(found >> np.uint64(32))) == 256
