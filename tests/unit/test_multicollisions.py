"""Multicollisions of MurmurHash3 (S11): they hold under every seed, and the keyed scheme knows nothing of them.

Construction, x64_128 variant, after Aumasson and Bernstein (2012): a difference in bit 36 of the mixed first word and in bit
32 of the mixed second one leaves a block with nothing but a difference of 2^63 in h1, as 5·2^63 = 2^63 mod 2^64; the next
block's mixed first word takes it away in bit 63. So each pair of blocks may be one or the other, and ten pairs make 1024
messages with one digest. The mixing of a word is a bijection, so the words can be had.
"""

from __future__ import annotations

import itertools
import secrets
import struct

import mmh3
import numpy as np
import pytest

from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom.vectors import positions
from veilset.core.params import HashScheme

MASK = (1 << 64) - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
PAIRS = 10
BITS, HASHES = 10_000_019, 7
SALTS = 100


def unmixed(mixed: int, first: int, rotation: int, second: int) -> int:
    """The word that MurmurHash3 mixes (times first, rotated left, times second) into ``mixed``."""
    word = mixed * pow(second, -1, 1 << 64) & MASK
    word = (word >> rotation | word << 64 - rotation) & MASK
    return word * pow(first, -1, 1 << 64) & MASK


def block(mixed1: int, mixed2: int) -> bytes:
    """The 16 bytes whose words are mixed into these two."""
    return struct.pack("<QQ", unmixed(mixed1, C1, 31, C2), unmixed(mixed2, C2, 33, C1))


def colliding() -> list[bytes]:
    """1024 messages of 320 bytes."""
    plain = block(1, 2) + block(3, 4)
    other = block(1 ^ 1 << 36, 2 ^ 1 << 32) + block(3 ^ 1 << 63, 4)
    return [b"".join(choice) for choice in itertools.product((plain, other), repeat=PAIRS)]


MESSAGES = colliding()


@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF, (1 << 32) - 1])
def test_they_are_one_element_to_the_unkeyed_scheme(seed: int) -> None:
    """Whatever the seed; this is what docs/privacy.md says is not promised."""
    assert len(set(MESSAGES)) == 1 << PAIRS
    assert len({mmh3.mmh3_x64_128_digest(message, seed) for message in MESSAGES}) == 1
    assert len(np.unique(digests(MESSAGES, HashScheme.MMH3, seed))) == 1


def test_they_are_as_many_elements_to_the_keyed_scheme() -> None:
    """Under each of a hundred salts and keys all 1024 have positions of their own (two that share all seven of them would come
    up once in 10^43 runs)."""
    for salt in range(SALTS):
        hashed = digests(MESSAGES, HashScheme.BLAKE2B, salt, secrets.token_bytes(32))
        assert len(np.unique(positions(hashed, BITS, HASHES), axis=0)) == 1 << PAIRS
