"""Small releases, made bit by bit: elements, positions or equations, noise, header, signatures, file; and their answers.

The noise is no secret here: bit j flips iff the first 8 bytes, big-endian, of SHA-256("veilset golden noise" and j as 8
bytes, big-endian) are below the threshold. Plane p of a linear release draws its free columns likewise from
"veilset golden plane" and p as a byte; an element is dropped by "veilset golden coin" and its digest. In a generation each
vector's `salt` follows the text. A service draws all of it from the operating system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vectors.calibration import threshold
from vectors.ed25519 import public_key, sign
from vectors.linear import BAND, drop_threshold, equation, interleaved, solution
from vectors.normalizing import normalize
from vectors.protobuf import field
from vectors.reader import MAGIC, PROFILES, SCHEMES, Vector, digest, key_check, positions, read_generation

SIGNERS = [bytes(range(32)), bytes(range(32, 64))]
KEY = b"a secret of partners, 32 bytes.."
CHUNK_BYTES = 1 << 20
CREATED_AT_US = 1_700_000_000_123_456
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Golden:
    """A release file and what is to be read from it."""

    file: bytes
    told: dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A set and the promise of its release; or a vector of removed elements, of which only what says how it is made counts."""

    name: str
    sequence: int
    bits: int
    hashes: int
    scheme: int
    seed: int
    profile: int
    epsilon: float
    delta: float
    adjacency: int
    calibration: int
    users: int
    changed_bits: int
    epsilon0: float
    members: tuple[str, ...]
    others: tuple[str, ...]
    key: bytes = b""
    shared_seed: bool = False
    signers: int = 1
    count: bytes = b""
    columns: int = 0
    planes: int = 0
    salt: bytes = b""
    planned_increments: int = 0
    removals_epsilon: float = 0.0
    removed: Setting | None = None

    @property
    def linear(self) -> bool:
        """Whether it is a linear release; bits, hashes, changed_bits and epsilon0 mean nothing then."""
        return self.planes > 0


PLAIN = Setting(
    name="golden-plain",
    sequence=3,
    bits=1003,  # no multiple of 8
    hashes=3,
    scheme=1,
    seed=987_654_321,
    profile=2,
    epsilon=9.0,
    delta=0.0,
    adjacency=1,
    calibration=3,
    users=1,
    changed_bits=3,
    epsilon0=3.0,
    members=tuple(f" Member {number:02} Straße" for number in range(40)),
    others=tuple(f"stranger {number:02}" for number in range(20)),
)
KEYED = Setting(
    name="golden-keyed",
    sequence=1,
    bits=64,  # so short that positions of one element coincide
    hashes=4,
    scheme=2,
    seed=7,
    profile=4,
    epsilon=16.0,
    delta=1e-6,
    adjacency=2,
    calibration=1,
    users=1,
    changed_bits=8,
    epsilon0=2.0,
    members=("Alice@Example.com", "bob@bücher.example"),
    others=tuple(f"user{number}@example.com" for number in range(20)),
    key=KEY,
    shared_seed=True,
    signers=2,
    count=field(1, -12) + field(2, "laplace") + field(3, 1.5) + field(4, 1) + field(5, 0.5) + field(6, 1e-17),
)


LINEAR = Setting(
    name="golden-linear",
    sequence=2,
    bits=0,
    hashes=0,
    scheme=1,
    seed=4_000_000_000,
    profile=3,
    epsilon=6.0,
    delta=0.0,
    adjacency=2,
    calibration=3,
    users=2,
    changed_bits=0,
    epsilon0=0.0,
    members=tuple(f"Mitglied {number:03}" for number in range(60)),
    others=tuple(f"jemand {number:02}" for number in range(30)),
    columns=200,  # no multiple of 64
    planes=3,
)


def generation(base: Setting, increment: Setting, removed: Setting) -> list[Setting]:
    """A base and two increments, each with a vector of removed elements: of the base; then of the base and of increment 1."""
    parts = [replace(base, salt=b"0")]
    gone = [base.members[:3], (base.members[3], increment.members[0])]
    for number, elements in enumerate(gone, 1):
        members = increment.members[(number - 1) * 12 : number * 12]
        tombstones = replace(removed, members=elements, salt=b"removed %d" % number)
        sequence = base.sequence + (0, 1, 3)[number]  # sequence base + 2 was lost
        parts.append(
            replace(increment, sequence=sequence, members=members, others=(), salt=b"%d" % number, removed=tombstones)
        )
    return parts


_LINEAR_BASE = replace(
    LINEAR,
    name="golden-changing",
    sequence=7,
    scheme=2,
    key=KEY,
    users=1,
    columns=200,
    planes=7,
    planned_increments=30,
    removals_epsilon=4.0,
)
_BLOOM_BASE = replace(
    PLAIN,
    name="golden-growing",
    sequence=1,
    hashes=1,
    epsilon=5.0,
    changed_bits=1,
    epsilon0=5.0,
    planned_increments=2,
    removals_epsilon=3.0,
)
LINEAR_GENERATION = generation(
    _LINEAR_BASE,
    replace(_LINEAR_BASE, columns=131, members=tuple(f"Neu {number:02}" for number in range(24))),
    replace(_LINEAR_BASE, columns=129, planes=4, epsilon=4.0),  # no multiple of 64 either
)
BLOOM_GENERATION = generation(
    _BLOOM_BASE,
    replace(_BLOOM_BASE, bits=301, members=tuple(f" New Member {number:02} Straße" for number in range(24))),
    replace(_BLOOM_BASE, bits=203, epsilon=3.0, epsilon0=3.0),
)


def golden_releases() -> dict[str, Golden]:
    """File name without its ending → release, or base and increments."""
    return {
        "release-plain": make([PLAIN]),
        "release-keyed": make([KEYED]),
        "release-linear": make([LINEAR]),
        "release-generation-bloom": make(BLOOM_GENERATION),
        "release-generation-linear": make(LINEAR_GENERATION),
    }


def drops_below(setting: Setting) -> int:
    """The drop threshold."""
    relation = ("add-remove", "replace-one")[setting.adjacency - 1]
    return drop_threshold(relation, str(setting.epsilon), setting.users, setting.planes)


def solved_vector(setting: Setting) -> bytes:
    """A solution for the members that are kept."""
    kept = []
    for member in setting.members:
        coin = hashlib.sha256(b"veilset golden coin" + setting.salt + _digest(setting, member)).digest()
        if int.from_bytes(coin[:8], "big") >= drops_below(setting):
            kept.append(_positions(setting, member))
    planes = []
    for plane in range(setting.planes):
        drawn = hashlib.sha256(b"veilset golden plane" + setting.salt + bytes([plane])).digest()
        planes.append(solution(kept, setting.columns, int.from_bytes(drawn, "big")))
    return interleaved(planes, setting.columns)


def noisy_vector(setting: Setting) -> bytes:
    """Raw bits of the members, each flipped as its integer says."""
    if setting.linear:
        return solved_vector(setting)
    raw = set()
    for member in setting.members:
        raw |= set(_positions(setting, member))
    flip_below = threshold(setting.epsilon0)
    vector = bytearray((setting.bits + 7) // 8)
    for place in range(setting.bits):
        drawn = hashlib.sha256(b"veilset golden noise" + setting.salt + place.to_bytes(8, "big")).digest()
        if (place in raw) != (int.from_bytes(drawn[:8], "big") < flip_below):
            vector[place // 8] |= 128 >> place % 8
    return bytes(vector)


def _positions(setting: Setting, text: str) -> list[int]:
    hashed = _digest(setting, text)
    if setting.linear:
        return equation(setting.columns, BAND, int.from_bytes(hashed, "little"))
    return positions(hashed, setting.bits, setting.hashes)


def _digest(setting: Setting, text: str) -> bytes:
    element = normalize(PROFILES[setting.profile], text)
    assert element is not None
    return digest(SCHEMES[setting.scheme], setting.seed, setting.key, element)


def encoding(setting: Setting) -> bytes:
    """The message that says how a vector was made."""
    if setting.linear:
        own = field(1, setting.columns) + field(2, BAND) + field(3, setting.planes) + field(4, drops_below(setting))
        return field(2, own)
    own = field(1, setting.bits) + field(2, setting.hashes)
    return field(1, own + field(3, threshold(setting.epsilon0)) + field(4, setting.changed_bits))


def header(setting: Setting, vector: bytes, earlier: Sequence[tuple[int, bytes]]) -> bytes:
    """The header's bytes, field by field; earlier: sequence and manifest of the generation's releases before this one."""
    check = key_check(setting.key) if setting.key else b""
    hashing = field(1, setting.scheme) + field(2, setting.seed) + field(3, check)
    promise = field(1, setting.epsilon) + field(2, setting.delta) + field(3, setting.adjacency)
    promise += field(4, setting.calibration) + field(5, setting.users) + field(6, 1)
    chunks = [vector[start : start + CHUNK_BYTES] for start in range(0, len(vector), CHUNK_BYTES)]
    base = earlier[0][0] if earlier else setting.sequence
    charged = round((setting.epsilon + setting.removals_epsilon) * 10**9) * base  # increments charge nothing
    fields = [
        field(1, 1),
        field(2, setting.name),
        field(3, setting.sequence),
        field(4, hashing),
        field(5, encoding(setting)),
        field(6, promise),
        field(7, setting.profile),
        field(8, CREATED_AT_US + len(earlier) * DAY_US),
        field(9, CHUNK_BYTES),
        *(field(10, hashlib.sha256(chunk).digest()) for chunk in chunks),
        field(11, len(vector)),
        field(12, len(setting.members)),
        field(13, setting.count),
        field(14, charged),
        field(15, "0.000001" if setting.delta else "0"),
        field(16, setting.shared_seed),
        field(17, 4 * charged),
        field(18, "0.001" if setting.delta else "0"),
        field(20, base),
        *(field(21, field(1, part) + field(2, hashlib.sha256(manifest).digest())) for part, manifest in earlier),
        field(22, setting.planned_increments),
        field(23, encoding(setting.removed) if setting.removed else b""),
        field(24, setting.removals_epsilon),
    ]
    return b"".join(fields)


def make(parts: Sequence[Setting]) -> Golden:
    """The file of a base and its increments, and what a reader has to find: of the newest, with the earlier ones beside it."""
    file = b""
    earlier: list[tuple[int, bytes]] = []
    told: list[dict[str, Any]] = []
    for setting in parts:
        vector = noisy_vector(setting) + (noisy_vector(setting.removed) if setting.removed else b"")
        encoded = header(setting, vector, earlier)
        manifest, signatures = signed(setting, encoded)
        file += MAGIC + len(manifest).to_bytes(4, "little") + manifest + vector
        told.append(
            {
                "header": encoded.hex(),
                "fields": fields_told(setting, earlier),
                "signatures": signatures,
                "key": setting.key.hex(),
                "ones": sum(byte.bit_count() for byte in vector),
            }
        )
        earlier.append((setting.sequence, manifest))
    behind = {"earlier": told[:-1]} if len(told) > 1 else {}
    return Golden(file, told[-1] | behind | {"answers": list(answers(parts, file))})


def signed(setting: Setting, encoded: bytes) -> tuple[bytes, list[dict[str, str]]]:
    """A header's manifest, and its signatures with the secrets that they were made with."""
    manifest = field(1, encoded)
    signatures = []
    for secret in SIGNERS[: setting.signers]:
        public = public_key(secret)
        proof = sign(secret, b"veilset-release-v1\0" + encoded)
        name = hashlib.sha256(public).hexdigest()[:16]
        manifest += field(2, field(1, name) + field(2, proof) + field(3, public))
        signatures.append(
            {"secret": secret.hex(), "public_key": public.hex(), "key_id": name, "signature": proof.hex()}
        )
    return manifest, signatures


def encoding_told(setting: Setting) -> dict[str, int]:
    """How a vector was made, by the names of the contract."""
    if setting.linear:
        return {
            "columns": setting.columns,
            "band": BAND,
            "planes": setting.planes,
            "drop_threshold": drops_below(setting),
        }
    own = {"bits": setting.bits, "hashes": setting.hashes, "changed_bits": setting.changed_bits}
    return own | {"flip_threshold": threshold(setting.epsilon0)}


def fields_told(setting: Setting, earlier: Sequence[tuple[int, bytes]]) -> dict[str, Any]:
    """What the header says, by the names of the contract."""
    return {
        "set_name": setting.name,
        "sequence": setting.sequence,
        "encoding": encoding_told(setting),
        "scheme": SCHEMES[setting.scheme],
        "seed": setting.seed,
        "key_check": key_check(setting.key).hex() if setting.key else "",
        "normalization": PROFILES[setting.profile],
        "epsilon": setting.epsilon,
        "delta": setting.delta,
        "adjacency": ("add-remove", "replace-one")[setting.adjacency - 1],
        "calibration": ("w-quantile", "exact", "worst-case")[setting.calibration - 1],
        "elements_per_user": setting.users,
        "min_size": 1,
        "capacity": len(setting.members),
        "created_at_us": CREATED_AT_US + len(earlier) * DAY_US,
        "shared_seed": setting.shared_seed,
        "count_value": -12 if setting.count else None,
        "generation": earlier[0][0] if earlier else setting.sequence,
        "earlier": [[part, hashlib.sha256(manifest).hexdigest()] for part, manifest in earlier],
        "planned_increments": setting.planned_increments,
        "tombstones": encoding_told(setting.removed) if setting.removed else None,
        "removals_epsilon": setting.removals_epsilon,
    }


def answers(parts: Sequence[Setting], file: bytes) -> list[dict[str, Any]]:
    """Of the members and of others: where they are in the base's vector, what stands there, and what all releases mean.

    vectors: in a generation, the answers of each vector alone: those of the releases, then those of removed elements.
    """
    read = read_generation(file, public_key(SIGNERS[0]))
    vectors = [part.main for part in read.parts] + [part.tombstones for part in read.parts if part.tombstones]
    found = []
    for text in (text for setting in parts for text in (*setting.members, *setting.others)):
        answer = read.ask(text, parts[0].key)
        assert answer is not None
        alone = {"vectors": [_alone(vector, parts[0], text) for vector in vectors]} if len(vectors) > 1 else {}
        found.append(
            {
                "text": text,
                "positions": _positions(parts[0], text),
                "ones": answer.ones,
                "distinct": answer.distinct,
                "score": _rounded(answer.score),
                "member": answer.member,
                **alone,
            }
        )
    return found


def _alone(vector: Vector, setting: Setting, text: str) -> dict[str, Any]:
    answer = vector.ask(_digest(setting, text))
    return {"ones": answer.ones, "distinct": answer.distinct, "score": _rounded(answer.score)}


def _rounded(score: float) -> float:
    """The last digits of a logarithm differ from machine to machine."""
    return float(f"{score:.10g}")
