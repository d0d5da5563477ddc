"""A reader of release files in plain Python, written from docs/format.md alone: it shares no line with the library.

It shows that the document is enough to write one in another language. ``read_generation`` checks the file whole, a base
release and its increments, and returns what answers; of normalisation it knows what `vectors.normalizing` does.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

from vectors.ed25519 import verify
from vectors.linear import equation, reads_zero
from vectors.murmur3 import murmur3_x64_128
from vectors.normalizing import normalize
from vectors.protobuf import Value, parse

MAGIC = b"veilset\x01"
SCHEMES = {1: "mmh3-1", 2: "blake2b-1"}
PROFILES = {1: "none", 2: "trim-casefold-1", 3: "nfc-1", 4: "email-1"}
ALIKE = [2, 4, 6, 7, 20, 22, 24]
"""Fields that all releases of a generation share."""
_MASK = (1 << 64) - 1


def digest(scheme: str, seed: int, key: bytes, element: bytes) -> bytes:
    """8 bytes."""
    if scheme == "mmh3-1":
        return murmur3_x64_128(element, seed)[:8]
    salt = seed.to_bytes(16, "little")
    return hashlib.blake2b(element, digest_size=8, key=key, salt=salt, person=b"veilset-1".ljust(16, b"\0")).digest()


def key_check(key: bytes) -> bytes:
    """8 bytes."""
    return hashlib.blake2b(b"", digest_size=8, key=key, person=b"veilset-check-1".ljust(16, b"\0")).digest()


def positions(hashed: bytes, bits: int, hashes: int) -> list[int]:
    """k positions below m."""
    h = int.from_bytes(hashed, "little")
    found = [h * bits >> 64]
    for i in range(1, hashes):
        z = h + i * 0x9E3779B97F4A7C15 & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        found.append(((z ^ z >> 31) * bits) >> 64)
    return found


def bit(vector: bytes, position: int) -> int:
    """Bit j is bit 7 - (j mod 8) of byte j // 8."""
    return vector[position // 8] >> (7 - position % 8) & 1


@dataclass(frozen=True)
class Answer:
    """score in nats; member by the default rule. ones: of distinct positions in the base's vector; in a linear one 1 for yes."""

    ones: int
    distinct: int
    score: float
    member: bool


@dataclass(frozen=True)
class Vector:
    """One vector and how it was made; ``linear``: whether by field 2 of the encoding, not field 1."""

    linear: bool
    own: dict[int, list[Value]]
    data: bytes
    ones: int

    def number(self, field: int) -> int:
        """An integer field of the encoding's parameters; 0 where it was left out."""
        return _number(self.own, field)

    @property
    def saturated(self) -> bool:
        """Whether it shows nothing. Linear vectors are within their capacity here, so their test is left out."""
        return not self.linear and self.ones / self.number(1) >= 1 - self.number(3) / 2.0**64

    def ask(self, hashed: bytes) -> Answer:
        """The answer of this vector alone."""
        if self.linear:
            yes, score = self._solved(int.from_bytes(hashed, "little"))
            return Answer(int(yes), 1, score, score > 0)
        places = set(positions(hashed, self.number(1), self.number(2)))
        ones = sum(bit(self.data, place) for place in places)
        score = self._score(ones, len(places))
        return Answer(ones, len(places), score, score > 0)

    def _solved(self, hashed: int) -> tuple[bool, float]:
        planes, drop = self.number(3), self.number(4) / 2.0**64
        yes = reads_zero(self.data, planes, equation(self.number(1), self.number(2), hashed))
        others = 2.0**-planes
        members = 1 - drop * (1 - others)
        return yes, math.log(members / others) if yes else math.log(drop)

    def _score(self, ones: int, distinct: int) -> float:
        if self.saturated:
            return 0.0
        flip = self.number(3) / 2.0**64
        share = self.ones / self.number(1)
        one = min(max(share, flip), 1 - flip)
        zero = min(max(1 - share, flip), 1 - flip)
        return ones * math.log((1 - flip) / one) + (distinct - ones) * math.log(flip / zero)

    @property
    def padded(self) -> bool:
        """Whether no bit behind the last one is set."""
        last, data = self.number(1), self.data
        if not self.linear:
            return not any(bit(data, place) for place in range(last, 8 * len(data)))
        ends = range(len(data) - 8 * self.number(3), len(data), 8) if last % 64 else ()
        return not any(int.from_bytes(data[start : start + 8], "little") >> last % 64 for start in ends)


@dataclass(frozen=True)
class Release:
    """A checked release. tombstones: the vector of removed elements, where there is one."""

    header: dict[int, list[Value]]
    manifest: bytes = field(compare=False)  # it holds names that mean nothing
    main: Vector
    tombstones: Vector | None

    def number(self, field: int, of: int | None = None) -> int:
        """An integer field of the header, or of the message in field ``of``; 0 where it was left out."""
        return _number(self.message(of) if of is not None else self.header, field)

    def message(self, field: int) -> dict[int, list[Value]]:
        """A message within the header."""
        value = self.header.get(field, [b""])[-1]
        assert isinstance(value, bytes)
        return parse(value)


@dataclass(frozen=True)
class Generation:
    """A base release and its increments, which is a file's content; most files hold a base alone."""

    parts: tuple[Release, ...]

    @property
    def newest(self) -> Release:
        """The release that names all others."""
        return self.parts[-1]

    def digest(self, text: str, key: bytes = b"") -> bytes | None:
        """None for what is no element. Raises ValueError for another secret."""
        newest = self.newest
        element = normalize(PROFILES[newest.number(7)], text)
        if element is None:
            return None
        check = newest.message(4).get(3, [b""])[-1]
        if check and check != key_check(key):
            raise ValueError("the wrong secret")
        return digest(SCHEMES[newest.number(1, of=4)], newest.number(2, of=4), key, element)

    def ask(self, text: str, key: bytes = b"") -> Answer | None:
        """Whether any release says yes and no vector of removed elements does. None for what is no element."""
        hashed = self.digest(text, key)
        if hashed is None:
            return None
        found = [part.main.ask(hashed) for part in self.parts]
        if len(found) == 1:
            return found[0]
        removed = [part.tombstones.ask(hashed) for part in self.parts if part.tombstones]
        sizes = [part.number(12) for part in self.parts]
        ratio = sum(size * math.exp(answer.score) for size, answer in zip(sizes, found, strict=True)) / sum(sizes)
        score = math.log(ratio) - max((answer.score for answer in removed if answer.score > 0), default=0.0)
        member = any(answer.member for answer in found) and not any(answer.member for answer in removed)
        return Answer(found[0].ones, found[0].distinct, score, member)


def read_generation(file: bytes, trusted: bytes) -> Generation:
    """Check a release file whole against a trusted public key. Raises ValueError."""
    parts: list[Release] = []
    place = 0
    while place < len(file) or not parts:
        part, place = _read_release(file, place, trusted)
        parts.append(part)
    newest = parts[-1].header.get(21, [])
    if len(newest) != len(parts) - 1:
        raise ValueError("an earlier release is missing, or one too many is there")
    for number, (part, named) in enumerate(zip(parts, newest, strict=False)):
        assert isinstance(named, bytes)
        fields = parse(named)
        if fields.get(2) != [hashlib.sha256(part.manifest).digest()] or _number(fields, 1) != part.number(3):
            raise ValueError("an earlier release is not the one that the newest names")
        if part.header.get(21, []) != newest[:number]:
            raise ValueError("an earlier release names others before it")
        if any(part.header.get(field) != parts[-1].header.get(field) for field in ALIKE):
            raise ValueError("a release of another generation")
    return Generation(tuple(parts))


def _read_release(file: bytes, place: int, trusted: bytes) -> tuple[Release, int]:
    """The checked release at a place in a file, and the place behind it."""
    if file[place : place + 8] != MAGIC:
        raise ValueError("no release file")
    start = place + 12
    end = start + int.from_bytes(file[place + 8 : start], "little")
    manifest = file[start:end]
    fields = parse(manifest)
    (encoded,) = fields[1]
    assert isinstance(encoded, bytes)
    if not any(_signed(signature, encoded, trusted) for signature in fields.get(2, [])):
        raise ValueError("not signed by the trusted key")
    header = parse(encoded)
    size, chunk = _number(header, 11), _number(header, 9)
    packed = file[end : end + size]
    lengths = [_length(message) for message in header.get(5, []) + header.get(23, [])]
    if _number(header, 1) != 1 or not size == sum(lengths) == len(packed) or chunk != 1 << 20:
        raise ValueError("of another format, or of another length")
    hashes = [hashlib.sha256(packed[begin : begin + chunk]).digest() for begin in range(0, size, chunk)]
    if hashes != header.get(10):
        raise ValueError("a chunk does not match its hash")
    removes = bool(header.get(21)) and 24 in header
    if (23 in header) != removes:
        raise ValueError("a vector of removed elements is missing, or has no place here")
    main = _vector(header[5][-1], packed[: lengths[0]])
    tombstones = _vector(header[23][-1], packed[lengths[0] :]) if removes else None
    if not main.padded or (tombstones and not tombstones.padded):
        raise ValueError("padding bits are set")
    return Release(header, manifest, main, tombstones), end + size


def _family(encoding: Value) -> tuple[bool, dict[int, list[Value]]]:
    """Whether a vector is linear, and its parameters."""
    assert isinstance(encoding, bytes)
    message = parse(encoding)
    own = message.get(2 if 2 in message else 1, [b""])[-1]
    assert isinstance(own, bytes)
    return 2 in message, parse(own)


def _length(encoding: Value) -> int:
    """Bytes of a vector."""
    linear, own = _family(encoding)
    return (_number(own, 1) + 63) // 64 * 8 * _number(own, 3) if linear else (_number(own, 1) + 7) // 8


def _vector(encoding: Value, data: bytes) -> Vector:
    return Vector(*_family(encoding), data, sum(byte.bit_count() for byte in data))


def _number(message: dict[int, list[Value]], field: int) -> int:
    value = message.get(field, [0])[-1]
    assert isinstance(value, int)
    return value


def _signed(signature: Value, encoded: bytes, trusted: bytes) -> bool:
    assert isinstance(signature, bytes)
    fields = parse(signature)
    (proof,), (public,) = fields[2], fields[3]
    assert isinstance(proof, bytes)
    return public == trusted and verify(trusted, b"veilset-release-v1\0" + encoded, proof)
