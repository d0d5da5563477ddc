"""Writes the golden vectors: ``python tests/vectors/generate.py`` from the root of the tree, or with --check compares.

It imports nothing of the library. What it needs stands beside it: MurmurHash3, Ed25519, calibration in whole numbers,
protobuf by hand; BLAKE2b, SHA-2, NFC and case folding come from Python's own library.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from vectors.calibration import (
    changed_bits_law,
    exact_epsilon0,
    float_at_most,
    quantile,
    threshold,
)
from vectors.elements import LONG, NORMALIZED, SPEC_FIELDS, SPEC_TEXT
from vectors.golden_release import golden_releases
from vectors.linear import rows, thresholds
from vectors.normalizing import normalize
from vectors.reader import PROFILES, bit, digest, key_check, positions

FOLDER = Path(__file__).parent
KEYS = [bytes(range(16)), bytes(range(32)), b"\xff" * 64]
SEEDS = [0, 1, 123_456_789, (1 << 32) - 1]
DATA = [b"", b"a", b"alice@example.com", "Straße".encode(), bytes(range(256)), b"\0", b"\xff\xfe", b"x" * 257]
DATA += [b"0123456789abcdef"[:length] for length in range(2, 17)]  # every length of the last block
SHAPES = [
    (8, 1),
    (9, 4),
    (1003, 3),
    (524_288, 5),
    (10_000_000, 7),
    ((1 << 32) - 1, 2),
    (1 << 32, 2),
    ((1 << 32) + 1, 2),
    (6_000_000_001, 4),
    (1 << 40, 32),
]
PROMISES = [
    # bits, hashes, relation, calibration, ε, δ, elements_per_user, min_size
    (524_288, 3, "replace-one", "w-quantile", "3", "0.01", 1, 100_000),
    (524_288, 5, "replace-one", "w-quantile", "3", "1e-3", 1, 100_000),
    (10_000_000, 7, "replace-one", "w-quantile", "3", "1e-6", 1, 1_000_000),
    (10_000_000, 7, "add-remove", "w-quantile", "3", "1e-6", 1, 1_000_000),
    (64, 4, "add-remove", "w-quantile", "3", "1e-6", 1, 1),
    (64, 4, "add-remove", "w-quantile", "0.1", "0.01", 2, 1),
    (1003, 2, "replace-one", "w-quantile", "1", "1e-9", 3, 50),
    (524_288, 3, "replace-one", "exact", "3", "0.01", 1, 100_000),
    (524_288, 5, "replace-one", "exact", "3", "1e-3", 1, 100_000),
    (10_000_000, 7, "replace-one", "exact", "3", "1e-6", 1, 1_000_000),
    (10_000_000, 7, "add-remove", "exact", "3", "1e-6", 1, 1_000_000),
    (64, 4, "add-remove", "exact", "3", "1e-6", 1, 1),
    (1003, 2, "add-remove", "exact", "0.7", "1e-4", 2, 100),
    (1003, 3, "add-remove", "worst-case", "3", "0", 1, 1),
    (4096, 4, "replace-one", "worst-case", "0.1", "0", 5, 1),
    (1 << 40, 32, "add-remove", "worst-case", "64", "0", 1000, 1),
]
EPSILON0 = [0.0, 5e-324, 1e-9, 0.01, 0.1, 0.5, 0.701863384, 1.0, 2.0, 3.0, 8.0, 20.0, 44.0, 44.36, 44.37, 64.0]


def digests() -> Iterator[dict[str, Any]]:
    """Every element under every seed, unkeyed and with one key; the keys' lengths in turn."""
    for number, element in enumerate(DATA):
        for seed in SEEDS:
            yield {
                "scheme": "mmh3-1",
                "seed": seed,
                "element": element.hex(),
                "digest": digest("mmh3-1", seed, b"", element).hex(),
            }
        seed, key = SEEDS[number % 4], KEYS[number % 3]
        hashed = digest("blake2b-1", seed, key, element).hex()
        yield {"scheme": "blake2b-1", "seed": seed, "key": key.hex(), "element": element.hex(), "digest": hashed}


def places() -> Iterator[dict[str, Any]]:
    """Digests of every sort under every shape."""
    made = [digest("mmh3-1", 0, b"", element) for element in DATA[1:5]]
    for hashed in (bytes(8), b"\xff" * 8, bytes(7) + b"\x80", *made):
        for bits, hashes in SHAPES:
            yield {"digest": hashed.hex(), "bits": bits, "hashes": hashes, "positions": positions(hashed, bits, hashes)}


def bit_order() -> Iterator[dict[str, Any]]:
    """Which bit of which byte a position is."""
    for bits, ones in ((8, [0]), (8, [7]), (9, [8]), (20, [0, 3, 8, 15, 19]), (64, list(range(0, 64, 7)))):
        vector = bytearray((bits + 7) // 8)
        for place in ones:
            vector[place // 8] |= 128 >> place % 8
        assert [place for place in range(bits) if bit(bytes(vector), place)] == ones
        yield {"bits": bits, "ones": ones, "vector": vector.hex()}


def normalizations() -> Iterator[dict[str, Any]]:
    """Every text under every profile. ``times``: text and element are repeated so often."""
    for text in NORMALIZED:
        for profile in PROFILES.values():
            done = normalize(profile, text)
            yield {"profile": profile, "text": text, "times": 1, "element": None if done is None else done.hex()}
    for text, times in LONG:
        for profile in PROFILES.values():
            whole, one = normalize(profile, text * times), normalize(profile, text)
            assert whole is None or (one is not None and whole == one * times)
            done = None if whole is None else one
            yield {"profile": profile, "text": text, "times": times, "element": None if done is None else done.hex()}


def calibrations() -> Iterator[dict[str, Any]]:
    """N, ε0 and T of each promise. ε0 is a float to be met exactly, but of ``exact`` a decimal to be met closely from below."""
    for bits, hashes, relation, calibration, epsilon, delta, users, min_size in PROMISES:
        charged = Fraction(float_at_most(Fraction(epsilon))), Fraction(float_at_most(Fraction(delta)))
        if calibration == "worst-case":
            changed = (1 if relation == "add-remove" else 2) * users * hashes
        else:
            law = changed_bits_law(bits, hashes, relation == "replace-one", users, min_size)
            changed = quantile(law, charged[1])
        epsilon0 = float_at_most(charged[0] / changed)
        found: dict[str, Any] = {"epsilon0": epsilon0, "threshold": threshold(epsilon0)}
        if calibration == "exact":
            best = exact_epsilon0(law, *charged, Fraction(epsilon0))
            found = {"epsilon0_decimal": f"{best.numerator * 10**24 // best.denominator}e-24"}
        yield {
            "bits": bits,
            "hashes": hashes,
            "adjacency": relation,
            "calibration": calibration,
            "epsilon": float(epsilon),
            "delta": float(delta),
            "elements_per_user": users,
            "min_size": min_size,
            "changed_bits": changed,
            **found,
        }


def build() -> dict[str, bytes]:
    """File name → content."""
    files = {
        "digests.json": {
            "digests": list(digests()),
            "key_checks": [{"key": key.hex(), "key_check": key_check(key).hex()} for key in KEYS],
        },
        "positions.json": {"positions": list(places()), "bit_order": list(bit_order())},
        "normalization.json": {"normalization": list(normalizations())},
        "calibration.json": {
            "promises": list(calibrations()),
            "thresholds": [{"epsilon0": value, "threshold": threshold(value)} for value in EPSILON0],
        },
        "linear.json": {"rows": list(rows()), "thresholds": list(thresholds())},
        "spec.json": {"text": SPEC_TEXT, "fields": SPEC_FIELDS},
    }
    written = {name: json.dumps(content, indent=1).encode() + b"\n" for name, content in files.items()}
    releases = golden_releases()
    for name, release in releases.items():
        written[f"{name}.veilset"] = release.file
        written[f"{name}.json"] = json.dumps(release.told, indent=1).encode() + b"\n"
    return written


def main() -> int:
    """Write or, with --check, compare; returns the exit code."""
    different = []
    for name, content in build().items():
        path = FOLDER / name
        if "--check" not in sys.argv:
            path.write_bytes(content)
        elif not path.exists() or path.read_bytes() != content:
            different.append(name)
        print(f"{hashlib.sha256(content).hexdigest()[:16]}  {name}")
    print(f"different: {', '.join(different) or 'none'}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
