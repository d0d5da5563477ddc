"""Element bytes → 64-bit digest → k positions.

The positions of an element are independent and uniform in the model that the W bound needs, digest and finaliser together
idealised as a random function (docs/privacy.md, section 2). Golden values: tests/unit/test_hashing.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import repeat

import mmh3
import numpy as np
from numpy.typing import NDArray

from veilset.core.params import DIGEST_BYTES, HashScheme
from veilset.errors import InvalidInput

KEY_BYTES = range(16, 65)

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_PERSON = b"veilset-1"
_STEP = 0x9E3779B97F4A7C15


def digests(
    elements: Sequence[bytes], scheme: HashScheme = HashScheme.MMH3, seed: int = 0, key: bytes | None = None
) -> NDArray[np.uint64]:
    """Hash elements; returns shape (n,), dtype uint64.

    seed: public, 32 bits. key: 16 to 64 secret bytes, for the BLAKE2b scheme only, which takes the seed as its salt.
    The caller has checked the elements (bytes, not str: mmh3 ends the process on a str with a lone surrogate).
    Raises InvalidInput if scheme and key do not fit together.
    """
    if scheme is HashScheme.MMH3:
        if key is not None:
            raise InvalidInput("key", f"absent with scheme {scheme}")
        halves = np.frombuffer(b"".join(map(mmh3.mmh3_x64_128_digest, elements, repeat(seed))), dtype="<u8")
        return halves[::2].astype(np.uint64)
    if key is None:
        raise InvalidInput(
            "key", f"given: scheme {scheme} needs its secret, {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes"
        )
    if len(key) not in KEY_BYTES:
        raise InvalidInput("key", f"{KEY_BYTES.start} to {KEY_BYTES.stop - 1} secret bytes with scheme {scheme}")
    salt = seed.to_bytes(16, "little")
    packed = b"".join(
        hashlib.blake2b(element, digest_size=DIGEST_BYTES, key=key, salt=salt, person=_PERSON).digest()
        for element in elements
    )
    return unpack_digests(packed)


def unpack_digests(packed: bytes) -> NDArray[np.uint64]:
    """View packed 8-byte little-endian digests as shape (n,), dtype uint64. Raises InvalidInput if a digest is cut."""
    if len(packed) % DIGEST_BYTES:
        raise InvalidInput("digests", f"a multiple of {DIGEST_BYTES} bytes long", len(packed))
    return np.frombuffer(packed, dtype="<u8").astype(np.uint64, copy=False)


def pack_digests(hashed: NDArray[np.uint64]) -> bytes:
    """Inverse of `unpack_digests`."""
    return hashed.astype("<u8", copy=False).tobytes()


def sorted_distinct(hashed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each digest once, rising; a hundred times as fast as numpy's `unique`, which goes through a hash table."""
    ordered = np.sort(hashed)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def positions(hashed: NDArray[np.uint64], bits: int, hashes: int) -> NDArray[np.uint64]:
    """Positions of digests of shape (n,): shape (n, hashes), dtype uint64, each in [0, bits), bits ≤ 2^40.

    Position 0 is floor(h·bits / 2^64), so sorted digests have it sorted; for i in 1 … hashes-1 it is floor(z·bits / 2^64) with z
    the splitmix64 finaliser of h + i·0x9e3779b97f4a7c15 mod 2^64.
    """
    found = np.empty((len(hashed), hashes), dtype=np.uint64)
    found[:, 0] = _scale(hashed, bits)
    for i in range(1, hashes):
        found[:, i] = _scale(_splitmix64(hashed + np.uint64(i * _STEP % 2**64)), bits)
    return found


def _splitmix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014), a bijection of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _scale(z: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """floor(z·bits / 2^64) in 64-bit pieces: no partial sum below reaches 2^64 while bits ≤ 2^40."""
    z_high, z_low = z >> _32, z & _LOW32
    m_high, m_low = np.uint64(bits >> 32), np.uint64(bits & 0xFFFFFFFF)
    middle = z_high * m_low + ((z_low * m_low) >> _32)
    if not m_high:
        return np.asarray(middle >> _32)
    carry = z_low * m_high + (middle & _LOW32)
    return np.asarray(z_high * m_high + (middle >> _32) + (carry >> _32))
