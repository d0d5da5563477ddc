"""Releases made by the real functions, without a service: build, perturb, sign, write, and open again."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import veilset
from harness.shapes import FilterParameters
from veilset._reader.sources import write_release
from veilset.core.elements.hashing import digests, sorted_distinct
from veilset.core.elements.normalization import Element, normalize
from veilset.core.encodings import find_encoding
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.interface import CHUNK_BYTES, Parameters
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, Calibration, HashParameters, Normalization, PrivacyParameters
from veilset.core.release.header import EarlierPart, ReleaseHeader
from veilset.core.release.signing import sign_header

SIGNER = Ed25519PrivateKey.generate()
PUBLIC_KEY = SIGNER.public_key().public_bytes_raw()


def hash_chunks(chunks: Iterable[bytes]) -> tuple[bytes, ...]:
    """SHA-256 of each chunk."""
    return tuple(hashlib.sha256(chunk).digest() for chunk in chunks)


def release_bytes(
    elements: Sequence[Element],
    shape: FilterParameters,
    epsilon: float,
    *,
    name: str = "members",
    sequence: int = 1,
    normalization: Normalization = Normalization.NONE,
    key: bytes | None = None,
    created_at_us: int = 1_700_000_000_000_000,
    signer: Ed25519PrivateKey = SIGNER,
    encoding: Parameters | None = None,
) -> bytes:
    """A release file of these elements, pure ε under add-remove. encoding: in place of a Bloom filter of this shape."""
    privacy = PrivacyParameters(epsilon, 0.0, Adjacency.ADD_REMOVE)
    if encoding is None:
        encoding = BloomParameters.calibrate(privacy, {"bits": shape.bits, "hashes": shape.hashes})
    hashed = digests(normalize(elements, normalization), shape.scheme, shape.seed, key)
    chunks = list(encoding.encode([sorted_distinct(hashed)], os.urandom))
    header = ReleaseHeader(
        set_name=name,
        sequence=sequence,
        hashing=shape.hashing,
        encoding=encoding,
        privacy=encoding.charged(privacy),
        normalization=normalization,
        capacity=max(1, len(hashed)),
        created_at_us=created_at_us,
        chunk_sha256=hash_chunks(chunks),
        total_nano_epsilon=round(epsilon * 1e9),
        total_delta="0",
        limit_nano_epsilon=round(epsilon * 1e9),
        limit_delta="0",
    )
    file = io.BytesIO()
    write_release(file, sign_header(header, [signer]), chunks)
    return file.getvalue()


def generation(encoding: str, elements: Sequence[str], increments: int = 3, crowded: int | None = None) -> list[bytes]:
    """Release files of a base of the first elements and of increments of the others, each with a tenth of the base removed.

    crowded: the number of one that holds ten times as much as it is made for.
    """
    privacy = PrivacyParameters(6.0, 0.0, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)
    hashing, each = HashParameters(seed=7), len(elements) // (increments + 1)
    family = find_encoding(encoding)
    made = family.plan(PlanRequest(each, privacy, bits_per_element=24.0)).parameters
    files: list[bytes] = []
    earlier: list[EarlierPart] = []
    for number in range(increments + 1):
        own = list(elements[number * each : (number + 1) * each])
        own += [f"crowd{place}" for place in range(9 * each)] if number == crowded else []
        gone = elements[(number - 1) * each // 10 : number * each // 10] if number else []
        vectors = [(made, own), *([(made, gone)] if number else [])]
        packed = b"".join(
            b"".join(
                one.encode([sorted_distinct(digests([text.encode() for text in texts], hashing.scheme, 7))], os.urandom)
            )
            for one, texts in vectors
        )
        chunks = [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]
        header = ReleaseHeader(
            set_name="members",
            sequence=number + 1,
            hashing=hashing,
            encoding=made,
            privacy=made.charged(privacy),
            normalization=Normalization.NONE,
            capacity=each,
            created_at_us=1_700_000_000_000_000 + number,
            chunk_sha256=hash_chunks(chunks),
            total_nano_epsilon=12 * 10**9,
            total_delta="0",
            limit_nano_epsilon=12 * 10**9,
            limit_delta="0",
            generation=1,
            earlier=tuple(earlier),
            planned_increments=increments,
            tombstones=made if number else None,
            removals_epsilon=6.0,
        )
        signed = sign_header(header, [SIGNER])
        earlier.append(EarlierPart(number + 1, hashlib.sha256(signed).digest()))
        write_release(file := io.BytesIO(), signed, chunks)
        files.append(file.getvalue())
    return files


def linear_parameters(capacity: int, epsilon: float) -> LinearParameters:
    """What the planner takes for so many elements, pure ε under add-remove."""
    request = PlanRequest(capacity, PrivacyParameters(epsilon, 0.0, Adjacency.ADD_REMOVE))
    found = LinearParameters.plan(request).parameters
    assert isinstance(found, LinearParameters)
    return found


def release_view(
    elements: Sequence[Element],
    shape: FilterParameters,
    epsilon: float,
    *,
    name: str = "members",
    sequence: int = 1,
    normalization: Normalization = Normalization.NONE,
    key: bytes | None = None,
) -> veilset.View:
    """The same, opened."""
    data = release_bytes(elements, shape, epsilon, name=name, sequence=sequence, normalization=normalization, key=key)
    return veilset.open(data, key=key)
