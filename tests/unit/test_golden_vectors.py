"""The golden vectors hold for the library, and are what the independent generator writes: two programs, one answer."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

import veilset
from vectors import ed25519, generate
from veilset._reader.sources import read_manifest
from veilset._service.spec import Spec
from veilset.core.elements.hashing import digests, key_check, unpack_digests
from veilset.core.elements.normalization import normalize
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.calibration import calibrate, flip_threshold
from veilset.core.encodings.bloom.vectors import positions
from veilset.core.encodings.interface import Parameters, count_ones
from veilset.core.encodings.linear import rows as equations
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import Adjacency, Calibration, HashScheme, Normalization, PrivacyParameters
from veilset.core.release.header import ReleaseHeader, decode_header, encode_header
from veilset.core.release.signing import key_id, sign_header
from veilset.errors import InvalidInput
from veilset.v1 import release_pb2

RELEASES = ["release-plain", "release-keyed", "release-linear"]
GENERATIONS = ["release-generation-bloom", "release-generation-linear"]
FOLDER = Path(__file__).parents[1] / "vectors"
PROFILES = {profile.versioned: profile for profile in Normalization}


def load(name: str) -> Any:
    """A file of vectors."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_the_generator_writes_these_very_files() -> None:
    """So no vector was mended by hand, or by the library."""
    written = generate.build()
    assert set(written) == {path.name for path in FOLDER.iterdir() if path.suffix in (".json", ".veilset")}
    assert [name for name, content in written.items() if (FOLDER / name).read_bytes() != content] == []


def test_the_generator_is_independent() -> None:
    """Nothing in its folder imports the library, or what the library hashes and signs with."""
    sources = [path.read_text() for path in FOLDER.glob("*.py")]
    assert len(sources) > 5
    for line in "\n".join(sources).splitlines():
        if line.lstrip().startswith(("import ", "from ")):
            assert not any(name in line for name in ("veilset", "mmh3", "numpy", "cryptography", "google", "idna")), (
                line
            )


def test_digests() -> None:
    """Both schemes, all lengths of a last block, all key lengths; and the check values of keys."""
    vectors = load("digests")
    assert {row["scheme"] for row in vectors["digests"]} == {str(scheme) for scheme in HashScheme}
    for row in vectors["digests"]:
        key = bytes.fromhex(row["key"]) if "key" in row else None
        found = digests([bytes.fromhex(row["element"])], HashScheme(row["scheme"]), row["seed"], key)
        assert found.astype("<u8").tobytes().hex() == row["digest"], row
    for row in vectors["key_checks"]:
        assert key_check(bytes.fromhex(row["key"])) == row["key_check"]


def test_positions() -> None:
    """Vectors from 8 to 2^40 bits, above 2^32 and no multiple of 8 among them."""
    vectors = load("positions")
    for row in vectors["positions"]:
        found = positions(unpack_digests(bytes.fromhex(row["digest"])), row["bits"], row["hashes"])
        assert found.tolist() == [row["positions"]], row
    assert {row["bits"] > 1 << 32 for row in vectors["positions"]} == {True, False}
    assert {row["bits"] % 8 == 0 for row in vectors["positions"]} == {True, False}


def test_bit_order() -> None:
    """Which bit of which byte, as a reader tests it."""
    for row in load("positions")["bit_order"]:
        vector = np.frombuffer(bytes.fromhex(row["vector"]), dtype=np.uint8)
        read = vectors.test_bits(vector, np.arange(row["bits"], dtype=np.uint64))
        assert np.flatnonzero(read).tolist() == row["ones"]


def test_normalization() -> None:
    """Text and its UTF-8 bytes alike; a text that is refused is refused."""
    rows = load("normalization")["normalization"]
    assert {row["profile"] for row in rows} == set(PROFILES)
    refused = 0
    for row in rows:
        text, profile = row["text"] * row["times"], PROFILES[row["profile"]]
        if row["element"] is None:
            refused += 1
            with pytest.raises(InvalidInput, match="element must be"):
                normalize([text], profile)
            continue
        expected = bytes.fromhex(row["element"]) * row["times"]
        assert normalize([text, text.encode()], profile) == [expected, expected], (text, profile)
    assert refused > 50


@pytest.mark.parametrize(
    "row", load("calibration")["promises"], ids=lambda row: f"{row['calibration']}-{row['bits']}-{row['hashes']}"
)
def test_calibration(row: dict[str, Any]) -> None:
    """N, ε0 and T; the exact ε0 never above the true value, and as close as the search goes."""
    privacy = PrivacyParameters(
        row["epsilon"],
        row["delta"],
        Adjacency(row["adjacency"]),
        Calibration(row["calibration"]),
        row["elements_per_user"],
        row["min_size"],
    )
    found = calibrate(row["bits"], row["hashes"], privacy)
    assert found.changed_bits == row["changed_bits"]
    if "threshold" in row:
        assert (found.epsilon0, found.threshold) == (row["epsilon0"], row["threshold"])
    else:
        best = float(row["epsilon0_decimal"])
        assert best * (1 - 1e-14) <= found.epsilon0 <= math.nextafter(best, math.inf)
        assert found.threshold == flip_threshold(found.epsilon0)


def test_thresholds() -> None:
    """From no noise to speak of to a coin."""
    for row in load("calibration")["thresholds"]:
        assert flip_threshold(row["epsilon0"]) == row["threshold"], row


def test_spec() -> None:
    """As another program might write it."""
    vectors = load("spec")
    spec = Spec.parse(vectors["text"])
    assert spec.fields() == vectors["fields"]
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize("name", RELEASES + GENERATIONS)
def test_release(name: str) -> None:
    """The library reads the file as the generator meant it, writes the same header, and answers alike."""
    told, path = load(name), FOLDER / f"{name}.veilset"
    key = bytes.fromhex(told["key"]) or None
    view = veilset.open(path, public_keys=[row["public_key"] for row in told["signatures"]], key=key)
    parts = [*told.get("earlier", []), told]
    for part, written in zip(view.parts, parts, strict=True):
        assert fields_of(part.header) == written["fields"]
        assert encode_header(part.header).hex() == written["header"]
        assert count_ones(part.vector) == written["ones"]
    texts = [row["text"] for row in told["answers"]]
    assert view.contains_many(texts).tolist() == [row["member"] for row in told["answers"]]
    assert [text in view for text in texts] == [row["member"] for row in told["answers"]]
    assert view.scores(texts) == pytest.approx([row["score"] for row in told["answers"]], rel=1e-9, abs=1e-9)
    assert 0 < sum(row["member"] for row in told["answers"]) < len(texts)
    header = view.parts[0].header
    hashed = digests(normalize(texts, header.normalization), header.hashing.scheme, header.hashing.seed, key)
    assert places(header.encoding, hashed) == [row["positions"] for row in told["answers"]]
    assert not any(
        isinstance(header.encoding, LinearParameters) and vector.saturated for vector in view.decoder.vectors
    )


def fields_of(header: ReleaseHeader) -> dict[str, Any]:
    """What a header says, by the names in the vectors."""
    return {
        "set_name": header.set_name,
        "sequence": header.sequence,
        "encoding": header.encoding.fields(),
        "scheme": header.hashing.scheme,
        "seed": header.hashing.seed,
        "key_check": header.hashing.key_check,
        "normalization": header.normalization.versioned,
        "epsilon": header.privacy.epsilon,
        "delta": header.privacy.delta,
        "adjacency": header.privacy.adjacency,
        "calibration": header.privacy.calibration,
        "elements_per_user": header.privacy.elements_per_user,
        "min_size": header.privacy.min_size,
        "capacity": header.capacity,
        "created_at_us": header.created_at_us,
        "shared_seed": header.shared_seed,
        "count_value": header.count and header.count.value,
        "generation": header.generation,
        "earlier": [[part.sequence, part.manifest_sha256.hex()] for part in header.earlier],
        "planned_increments": header.planned_increments,
        "tombstones": header.tombstones and header.tombstones.fields(),
        "removals_epsilon": header.removals_epsilon,
    }


@pytest.mark.parametrize("name", GENERATIONS)
def test_generations_answer_by_all_their_vectors(name: str) -> None:
    """Each vector's own score; every release finds members that no other does, and removed elements are taken out."""
    told = load(name)
    key = bytes.fromhex(told["key"]) or None
    view = veilset.open(FOLDER / f"{name}.veilset", public_keys=[told["signatures"][0]["public_key"]], key=key)
    ((_, readings),) = view.read_batches([row["text"] for row in told["answers"]])
    scores = np.array([[vector["score"] for vector in row["vectors"]] for row in told["answers"]])
    for number, vector in enumerate(view.decoder.vectors):
        assert vector.scores(readings[:, number]) == pytest.approx(scores[:, number], rel=1e-9, abs=1e-9)
    found, removed = scores[:, :3] > 0, (scores[:, 3:] > 0).any(axis=1)
    member = np.array([row["member"] for row in told["answers"]])
    assert np.array_equal(member, found.any(axis=1) & ~removed)
    assert (found.sum(axis=1) == 1)[member].sum() > 30
    assert found[member].any(axis=0).all()
    assert (found.any(axis=1) & removed).sum() >= 5


def releases_of(name: str) -> list[tuple[dict[str, Any], bytes]]:
    """What is written down of each release in a file, and its manifest there."""
    told, file = load(name), (FOLDER / f"{name}.veilset").read_bytes()
    found, source = [], io.BytesIO(file)
    for written in [*told.get("earlier", []), told]:
        manifest = read_manifest(source)
        found.append((written, manifest))
        header = decode_header(release_pb2.SignedHeader.FromString(manifest).header)
        source.seek(header.vector_bytes, io.SEEK_CUR)
    assert source.tell() == len(file)
    return found


def places(parameters: Parameters, hashed: NDArray[np.uint64]) -> list[list[int]]:
    """Where each digest's bits are: its positions, or the columns of its equation."""
    if isinstance(parameters, LinearParameters):
        lines = [equations.row(parameters, digest) for digest in hashed.tolist()]
        return [[first + i for i in range(parameters.band) if band >> i & 1] for first, band in lines]
    found: list[list[int]] = positions(hashed, *parameters.dimensions().values()).tolist()
    return found


@pytest.mark.parametrize("name", RELEASES + GENERATIONS)
def test_signatures(name: str) -> None:
    """The manifests that the library signs with the same keys are those in the file, byte for byte."""
    for told, manifest in releases_of(name):
        keys = [Ed25519PrivateKey.from_private_bytes(bytes.fromhex(row["secret"])) for row in told["signatures"]]
        assert sign_header(decode_header(bytes.fromhex(told["header"])), keys) == manifest
        signatures = release_pb2.SignedHeader.FromString(manifest).signatures
        for row, signature in zip(told["signatures"], signatures, strict=True):
            public = bytes.fromhex(row["public_key"])
            assert (signature.key_id, signature.public_key) == (row["key_id"], public)
            assert (key_id(public), signature.signature.hex()) == (row["key_id"], row["signature"])


def test_the_generators_signatures_are_those_of_the_standard() -> None:
    """RFC 8032, section 7.1, test 2; and a changed message or signature does not pass."""
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    proof = ed25519.sign(secret, b"\x72")
    assert ed25519.public_key(secret) == public
    assert proof.hex().startswith("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da")
    assert ed25519.verify(public, b"\x72", proof)
    assert not ed25519.verify(public, b"\x73", proof)
    assert not ed25519.verify(public, b"\x72", proof[:-1] + bytes([proof[-1] ^ 1]))
