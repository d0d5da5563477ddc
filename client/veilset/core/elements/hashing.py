"""Element bytes → 64-bit digest, and the check value of a keyed scheme's secret. Golden values: tests/unit/test_hashing.py.

A digest under another secret points at other bits, so a reader with a wrong secret would answer "no" to everything and find no
overlap. The check value is part of a set and of its releases, so that a wrong secret is refused with an error. It is BLAKE2b
of the empty message, keyed by the secret, under a personalisation of its own: its parameter block differs from that of every
element's digest, so the two are outputs of a pseudorandom function at different points. Why the secret has to be random:
docs/privacy.md, section 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import repeat

import mmh3
import numpy as np
from numpy.typing import NDArray

from veilset.core.params import DIGEST_BYTES, KEY_CHECK_BYTES, HashParameters, HashScheme
from veilset.errors import InvalidInput, WrongKey, must_be

KEY_BYTES = range(16, 65)

_DIGEST_PERSON = b"veilset-1"

_WORD = (1 << 64) - 1
_CHECK_PERSON = b"veilset-check-1"


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
            raise InvalidInput("key", f"key does not belong with scheme {scheme}; leave it out")
        halves = np.frombuffer(b"".join(map(mmh3.mmh3_x64_128_digest, elements, repeat(seed))), dtype="<u8")
        return halves[::2].astype(np.uint64)
    if key is None:
        raise InvalidInput(
            "key", f"key is needed: scheme {scheme} takes a secret of {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes"
        )
    if len(key) not in KEY_BYTES:
        raise must_be("key", f"{KEY_BYTES.start} to {KEY_BYTES.stop - 1} secret bytes with scheme {scheme}")
    salt = seed.to_bytes(16, "little")
    packed = b"".join(
        hashlib.blake2b(element, digest_size=DIGEST_BYTES, key=key, salt=salt, person=_DIGEST_PERSON).digest()
        for element in elements
    )
    return unpack_digests(packed)


def digest_one(element: bytes, scheme: HashScheme = HashScheme.MMH3, seed: int = 0, key: bytes | None = None) -> int:
    """The digest of one element, as in `digests`, several times as fast for a single one. Raises InvalidInput."""
    if scheme is HashScheme.MMH3 and key is None:
        return int(mmh3.hash64(element, seed)[0]) & _WORD  # signed=False by position is not obeyed
    return int(digests([element], scheme, seed, key)[0])


def unpack_digests(packed: bytes) -> NDArray[np.uint64]:
    """View packed 8-byte little-endian digests as shape (n,), dtype uint64. Raises InvalidInput if a digest is cut."""
    if len(packed) % DIGEST_BYTES:
        raise must_be("digests", f"a multiple of {DIGEST_BYTES} bytes long", len(packed))
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


def key_check(key: bytes) -> str:
    """Check value of a secret of 16 to 64 bytes: 16 hexadecimal digits, public. Raises InvalidInput."""
    if not isinstance(key, bytes) or len(key) not in KEY_BYTES:
        raise must_be("key", f"{KEY_BYTES.start} to {KEY_BYTES.stop - 1} secret bytes")
    return hashlib.blake2b(digest_size=KEY_CHECK_BYTES, key=key, person=_CHECK_PERSON).hexdigest()


class AmbientKey(bytes):
    """A secret that the environment names for the keyed sets among many; it is ignored where a scheme takes none."""


def check_key(hashing: HashParameters, key: bytes | None, owner: str) -> bytes | None:
    """The secret to hash with. Raise WrongKey if ``key`` is not the one whose check value ``hashing`` has; ``owner`` names the
    set or release.

    None passes, as some work needs no key; any key passes if no check value is known. Raises InvalidInput for what cannot be a
    secret, and for a key with a scheme that takes none, unless it is an `AmbientKey`.
    """
    if key is None:
        return None
    if hashing.scheme is not HashScheme.BLAKE2B:
        if isinstance(key, AmbientKey):
            return None
        raise InvalidInput(
            "key", f"key does not belong to {owner}, whose scheme {hashing.scheme} takes none; leave it out"
        )
    own = key_check(key)
    if hashing.key_check and own != hashing.key_check:
        raise WrongKey(
            "key",
            f"key is not the secret that {owner} was made with: its check value is {own}, not {hashing.key_check}",
        )
    return key
