"""Small releases, made bit by bit: elements, positions or equations, noise, header, signatures, file; and their answers.

The noise is no secret here: bit j flips iff the first 8 bytes, big-endian, of SHA-256("veilset golden noise" and j as 8
bytes, big-endian) are below the threshold. Plane p of a linear release draws its free columns likewise from
"veilset golden plane" and p as a byte; an element is dropped by "veilset golden coin" and its digest. A service draws all of it
from the operating system.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from vectors.calibration import threshold
from vectors.ed25519 import public_key, sign
from vectors.linear import BAND, drop_threshold, equation, interleaved, solution
from vectors.normalizing import normalize
from vectors.protobuf import field
from vectors.reader import MAGIC, PROFILES, SCHEMES, digest, key_check, positions, read_release

SIGNERS = [bytes(range(32)), bytes(range(32, 64))]
KEY = b"a secret of partners, 32 bytes.."
CHUNK_BYTES = 1 << 20
CREATED_AT_US = 1_700_000_000_123_456


@dataclass(frozen=True)
class Golden:
    """A release file and what is to be read from it."""

    file: bytes
    told: dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A set and the promise of its release."""

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
    strangers: tuple[str, ...]
    key: bytes = b""
    shared_seed: bool = False
    signers: int = 1
    count: bytes = b""
    columns: int = 0
    planes: int = 0

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
    strangers=tuple(f"stranger {number:02}" for number in range(20)),
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
    strangers=tuple(f"user{number}@example.com" for number in range(20)),
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
    strangers=tuple(f"jemand {number:02}" for number in range(30)),
    columns=200,  # no multiple of 64
    planes=3,
)


def golden_releases() -> dict[str, Golden]:
    """File name without its ending → release."""
    return {"release-plain": make(PLAIN), "release-keyed": make(KEYED), "release-linear": make(LINEAR)}


def drops_below(setting: Setting) -> int:
    """The drop threshold."""
    relation = ("add-remove", "replace-one")[setting.adjacency - 1]
    return drop_threshold(relation, str(setting.epsilon), setting.users, setting.planes)


def solved_vector(setting: Setting) -> bytes:
    """A solution for the members that are kept."""
    kept = []
    for member in setting.members:
        coin = hashlib.sha256(b"veilset golden coin" + _digest(setting, member)).digest()
        if int.from_bytes(coin[:8], "big") >= drops_below(setting):
            kept.append(_positions(setting, member))
    planes = []
    for plane in range(setting.planes):
        drawn = hashlib.sha256(b"veilset golden plane" + bytes([plane])).digest()
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
        drawn = hashlib.sha256(b"veilset golden noise" + place.to_bytes(8, "big")).digest()
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


def header(setting: Setting, vector: bytes) -> bytes:
    """The header's bytes, field by field."""
    check = key_check(setting.key) if setting.key else b""
    hashing = field(1, setting.scheme) + field(2, setting.seed) + field(3, check)
    if setting.linear:
        own = field(1, setting.columns) + field(2, BAND) + field(3, setting.planes) + field(4, drops_below(setting))
    else:
        own = field(1, setting.bits) + field(2, setting.hashes)
        own += field(3, threshold(setting.epsilon0)) + field(4, setting.changed_bits)
    promise = field(1, setting.epsilon) + field(2, setting.delta) + field(3, setting.adjacency)
    promise += field(4, setting.calibration) + field(5, setting.users) + field(6, 1)
    chunks = [vector[start : start + CHUNK_BYTES] for start in range(0, len(vector), CHUNK_BYTES)]
    fields = [
        field(1, 1),
        field(2, setting.name),
        field(3, setting.sequence),
        field(4, hashing),
        field(5, field(2 if setting.linear else 1, own)),
        field(6, promise),
        field(7, setting.profile),
        field(8, CREATED_AT_US),
        field(9, CHUNK_BYTES),
        *(field(10, hashlib.sha256(chunk).digest()) for chunk in chunks),
        field(11, len(vector)),
        field(12, len(setting.members)),
        field(13, setting.count),
        field(14, round(setting.epsilon * 10**9) * setting.sequence),
        field(15, "0.000001" if setting.delta else "0"),
        field(16, setting.shared_seed),
        field(17, 4 * round(setting.epsilon * 10**9) * setting.sequence),
        field(18, "0.001" if setting.delta else "0"),
        field(20, setting.sequence),
    ]
    return b"".join(fields)


def make(setting: Setting) -> Golden:
    """The file, and what a reader has to find in it."""
    vector = noisy_vector(setting)
    encoded = header(setting, vector)
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
    file = MAGIC + len(manifest).to_bytes(4, "little") + manifest + vector
    told = {
        "header": encoded.hex(),
        "fields": fields_told(setting),
        "signatures": signatures,
        "key": setting.key.hex(),
        "ones": sum(byte.bit_count() for byte in vector),
        "answers": list(answers(setting, file)),
    }
    return Golden(file, told)


def fields_told(setting: Setting) -> dict[str, Any]:
    """What the header says, by the names of the contract."""
    if setting.linear:
        own = {
            "columns": setting.columns,
            "band": BAND,
            "planes": setting.planes,
            "drop_threshold": drops_below(setting),
        }
    else:
        own = {"bits": setting.bits, "hashes": setting.hashes, "changed_bits": setting.changed_bits}
        own["flip_threshold"] = threshold(setting.epsilon0)
    return {
        "set_name": setting.name,
        "sequence": setting.sequence,
        "encoding": own,
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
        "created_at_us": CREATED_AT_US,
        "shared_seed": setting.shared_seed,
        "count_value": -12 if setting.count else None,
    }


def answers(setting: Setting, file: bytes) -> list[dict[str, Any]]:
    """Of the members and of strangers: where they are, what stands there, and what that means."""
    release = read_release(file, public_key(SIGNERS[0]))
    found = []
    for text in (*setting.members, *setting.strangers):
        answer = release.ask(text, setting.key)
        assert answer is not None
        found.append(
            {
                "text": text,
                "positions": _positions(setting, text),
                "ones": answer.ones,
                "distinct": answer.distinct,
                "score": float(f"{answer.score:.10g}"),  # the last digits of a logarithm differ from machine to machine
                "member": answer.member,
            }
        )
    return found
