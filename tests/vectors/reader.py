"""A reader of release files in plain Python, written from docs/format.md alone: it shares no line with the library.

It shows that the document is enough to write one in another language. ``read_release`` checks the file whole and
returns what answers; of normalisation it knows what `vectors.normalizing` does.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from vectors.ed25519 import verify
from vectors.linear import equation, reads_zero
from vectors.murmur3 import murmur3_x64_128
from vectors.normalizing import normalize
from vectors.protobuf import Value, parse

MAGIC = b"veilset\x01"
SCHEMES = {1: "mmh3-1", 2: "blake2b-1"}
PROFILES = {1: "none", 2: "trim-casefold-1", 3: "nfc-1", 4: "email-1"}
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
    """ones of distinct positions; score in nats; member by the default rule. Of a linear release: ones is 1 for "yes", of 1."""

    ones: int
    distinct: int
    score: float
    member: bool


@dataclass(frozen=True)
class Release:
    """A checked release."""

    header: dict[int, list[Value]]
    vector: bytes
    ones: int

    def number(self, field: int, of: int | None = None) -> int:
        """An integer field of the header, or of the message in field ``of``; 0 where it was left out."""
        value = (self.message(of) if of is not None else self.header).get(field, [0])[-1]
        assert isinstance(value, int)
        return value

    def message(self, field: int) -> dict[int, list[Value]]:
        """A message within the header."""
        value = self.header.get(field, [b""])[-1]
        assert isinstance(value, bytes)
        return parse(value)

    @property
    def is_linear(self) -> bool:
        """Whether field 2 of the encoding is there, not field 1."""
        return 2 in self.message(5)

    def own(self, field: int) -> int:
        """An integer field of the encoding's parameters."""
        own = self.message(5).get(2 if self.is_linear else 1, [b""])[-1]
        assert isinstance(own, bytes)
        value = parse(own).get(field, [0])[-1]
        assert isinstance(value, int)
        return value

    def ask(self, text: str, key: bytes = b"") -> Answer | None:
        """None for what is no element."""
        element = normalize(PROFILES[self.number(7)], text)
        if element is None:
            return None
        scheme = self.number(1, of=4)
        check = self.message(4).get(3, [b""])[-1]
        if check and check != key_check(key):
            raise ValueError("the wrong secret")
        hashed = digest(SCHEMES[scheme], self.number(2, of=4), key, element)
        if self.is_linear:
            return self._solved(int.from_bytes(hashed, "little"))
        places = set(positions(hashed, self.own(1), self.own(2)))
        ones = sum(bit(self.vector, place) for place in places)
        score = self._score(ones, len(places))
        return Answer(ones, len(places), score, score > 0)

    def _solved(self, hashed: int) -> Answer:
        planes, drop = self.own(3), self.own(4) / 2.0**64
        yes = reads_zero(self.vector, planes, equation(self.own(1), self.own(2), hashed))
        others = 2.0**-planes
        members = 1 - drop * (1 - others)
        score = math.log(members / others) if yes else math.log(drop)
        return Answer(int(yes), 1, score, score > 0)

    def _score(self, ones: int, distinct: int) -> float:
        flip = self.own(3) / 2.0**64
        share = self.ones / self.own(1)
        if share >= 1 - flip:
            return 0.0
        one = min(max(share, flip), 1 - flip)
        zero = min(max(1 - share, flip), 1 - flip)
        return ones * math.log((1 - flip) / one) + (distinct - ones) * math.log(flip / zero)


def read_release(file: bytes, trusted: bytes) -> Release:
    """Check a release file whole against a trusted public key. Raises ValueError."""
    if file[:8] != MAGIC:
        raise ValueError("no release file")
    length = int.from_bytes(file[8:12], "little")
    manifest, vector = parse(file[12 : 12 + length]), file[12 + length :]
    (encoded,) = manifest[1]
    assert isinstance(encoded, bytes)
    if not any(_signed(signature, encoded, trusted) for signature in manifest.get(2, [])):
        raise ValueError("not signed by the trusted key")
    release = Release(parse(encoded), vector, sum(byte.bit_count() for byte in vector))
    size, chunk = release.number(11), release.number(9)
    length = (release.own(1) + 63) // 64 * 8 * release.own(3) if release.is_linear else (release.own(1) + 7) // 8
    if release.number(1) != 1 or size != length or len(vector) != size or chunk != 1 << 20:
        raise ValueError("of another format, or of another length")
    hashes = [hashlib.sha256(vector[start : start + chunk]).digest() for start in range(0, size, chunk)]
    if hashes != release.header.get(10):
        raise ValueError("a chunk does not match its hash")
    if _padding(release):
        raise ValueError("padding bits are set")
    return release


def _padding(release: Release) -> bool:
    """Whether a bit behind the last one is set."""
    last, vector = release.own(1), release.vector
    if not release.is_linear:
        return any(bit(vector, place) for place in range(last, 8 * len(vector)))
    ends = range(len(vector) - 8 * release.own(3), len(vector), 8) if last % 64 else ()
    return any(int.from_bytes(vector[start : start + 8], "little") >> last % 64 for start in ends)


def _signed(signature: Value, encoded: bytes, trusted: bytes) -> bool:
    assert isinstance(signature, bytes)
    fields = parse(signature)
    (proof,), (public,) = fields[2], fields[3]
    assert isinstance(proof, bytes)
    return public == trusted and verify(trusted, b"veilset-release-v1\0" + encoded, proof)
