"""Elements to digests against references in plain Python integers, written from the published algorithms."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.core.elements.hashing import digest_one, digests, pack_digests, sorted_distinct, unpack_digests
from veilset.core.params import MAX_SEED, HashScheme
from veilset.errors import InvalidInput

MASK = (1 << 64) - 1
KEY = bytes(range(32))

GOLDEN = [
    (b"", 0, 0x0, 0xCE470BE7CF1F71F0),
    (b"a", 1, 0x47EAE1073748CF70, 0x357F0D747913B16F),
    (b"The quick brown fox jumps over the lazy dog", 0, 0xE34BBC7BBC071B6C, 0x450C6951C8EF9071),
    (b"alice@example.com", MAX_SEED, 0xF094F03F6BF89C18, 0xEC7AA99DB65F43AF),
    (bytes(range(256)), 123456789, 0xE8F7DE42060EB0A8, 0x392475BA56BBE3A1),
]
"""Element, seed, digest under scheme mmh3-1, and under blake2b-1 with KEY. Computed by the references below."""


def rotated_left(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def murmur3_x64_128(data: bytes, seed: int) -> tuple[int, int]:
    """MurmurHash3_x64_128 of Austin Appleby: blocks of 16 bytes, the rest padded with zeros, then the finish."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mixed1(k: int) -> int:
        return rotated_left(k * c1 & MASK, 31) * c2 & MASK

    def mixed2(k: int) -> int:
        return rotated_left(k * c2 & MASK, 33) * c1 & MASK

    def finished(h: int) -> int:
        h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
        h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
        return h ^ h >> 33

    h1 = h2 = seed
    whole = len(data) // 16 * 16
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 = ((rotated_left(h1 ^ mixed1(k1), 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 = ((rotated_left(h2 ^ mixed2(k2), 31) + h1) * 5 + 0x38495AB5) & MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    h1, h2 = h1 ^ mixed1(k1) ^ len(data), h2 ^ mixed2(k2) ^ len(data)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    h1, h2 = finished(h1), finished(h2)
    h1 = (h1 + h2) & MASK
    return h1, (h2 + h1) & MASK


BLAKE2B_START = [
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
]  # fmt: skip
BLAKE2B_ORDER = [
    "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
    "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
]  # fmt: skip
"""Which message word goes where, one hexadecimal digit each, in rounds 0 to 9; rounds 10 and 11 are 0 and 1 again."""
BLAKE2B_LANES = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)] + [
    (i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)
]


def blake2b_compressed(state: list[int], block: bytes, total: int, last: bool) -> list[int]:
    """The compression function F of RFC 7693."""
    message = struct.unpack("<16Q", block.ljust(128, b"\0"))
    v = [*state, *BLAKE2B_START]
    v[12] ^= total
    v[14] ^= MASK if last else 0
    for turn in range(12):
        order = [int(digit, 16) for digit in BLAKE2B_ORDER[turn % 10]]
        for step, (a, b, c, d) in enumerate(BLAKE2B_LANES):
            for half, (first, second) in enumerate(((32, 24), (16, 63))):
                v[a] = (v[a] + v[b] + message[order[2 * step + half]]) & MASK
                v[d] = rotated_left(v[d] ^ v[a], 64 - first)
                v[c] = (v[c] + v[d]) & MASK
                v[b] = rotated_left(v[b] ^ v[c], 64 - second)
    return [h ^ v[i] ^ v[i + 8] for i, h in enumerate(state)]


def blake2b(size: int, data: bytes, key: bytes, salt: bytes = b"", person: bytes = b"") -> bytes:
    """BLAKE2b of up to 64 bytes: RFC 7693, with the salt and personalisation of the BLAKE2 paper's parameter block."""
    block = struct.pack("<BBBBIQBB14x16s16s", size, len(key), 1, 1, 0, 0, 0, 0, salt, person)
    state = [start ^ word for start, word in zip(BLAKE2B_START, struct.unpack("<8Q", block), strict=True)]
    data = (key.ljust(128, b"\0") if key else b"") + data
    for start in range(0, max(1, len(data)), 128):
        end = min(start + 128, len(data))
        state = blake2b_compressed(state, data[start:end], end, end == len(data))
    return struct.pack("<8Q", *state)[:size]


def only(hashed: NDArray[np.uint64]) -> int:
    """The one digest."""
    (digest,) = hashed.tolist()
    return int(digest)


@pytest.mark.parametrize(("element", "seed", "mmh3", "blake2b"), GOLDEN)
def test_golden_digests(element: bytes, seed: int, mmh3: int, blake2b: int) -> None:
    """A change of a scheme needs a new name: these values never change."""
    assert only(digests([element], HashScheme.MMH3, seed)) == mmh3
    assert only(digests([element], HashScheme.BLAKE2B, seed, KEY)) == blake2b


def test_references_meet_published_values() -> None:
    """The references themselves, against values of other implementations."""
    fox = b"The quick brown fox jumps over the lazy dog"
    assert murmur3_x64_128(fox, 0) == (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347)
    assert murmur3_x64_128(b"", 0) == (0, 0)
    assert blake2b(16, b"", b"").hex() == "cae66941d9efbd404e4d88758ea67670"


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(0, MAX_SEED))
@example(b"", MAX_SEED)
def test_mmh3_is_the_reference(element: bytes, seed: int) -> None:
    """The first half, read as a little-endian integer, for every length and seed."""
    assert only(digests([element], HashScheme.MMH3, seed)) == murmur3_x64_128(element, seed)[0]


@settings(max_examples=100)
@given(st.binary(max_size=300), st.integers(0, MAX_SEED), st.binary(min_size=16, max_size=64))
@example(b"", 0, bytes(16))
@example(bytes(128), 1, bytes(64))
def test_blake2b_is_the_reference(element: bytes, seed: int, key: bytes) -> None:
    """Keyed, the seed as salt, and personalised with the scheme."""
    wanted = blake2b(8, element, key, seed.to_bytes(16, "little"), b"veilset-1")
    assert only(digests([element], HashScheme.BLAKE2B, seed, key)) == int.from_bytes(wanted, "little")


def test_many_are_hashed_as_one_by_one() -> None:
    """Digest i belongs to element i; no elements give none."""
    elements = [b"%d" % i for i in range(1000)]
    for scheme, key in ((HashScheme.MMH3, None), (HashScheme.BLAKE2B, KEY)):
        hashed = digests(elements, scheme, 7, key)
        assert hashed.shape == (1000,)
        assert hashed.dtype == np.uint64
        assert all(only(digests([element], scheme, 7, key)) == hashed[i] for i, element in enumerate(elements))
        assert digests([], scheme, 7, key).shape == (0,)


def test_seed_and_key_matter() -> None:
    """Another seed, key or scheme is another hash."""
    found = [only(digests([b"x"], HashScheme.MMH3, seed)) for seed in (0, 1)]
    found += [only(digests([b"x"], HashScheme.BLAKE2B, seed, key)) for seed in (0, 1) for key in (KEY, KEY[:16])]
    assert len(set(found)) == 6


@pytest.mark.parametrize("key", [None, b"", bytes(15), bytes(65)])
def test_blake2b_needs_a_secret_key(key: bytes | None) -> None:
    """16 to 64 bytes."""
    with pytest.raises(InvalidInput, match="key"):
        digests([b"x"], HashScheme.BLAKE2B, 0, key)


@pytest.mark.parametrize("key", [b"", KEY])
def test_mmh3_takes_no_key(key: bytes) -> None:
    """A key that would be ignored is refused."""
    with pytest.raises(InvalidInput, match="key"):
        digests([b"x"], HashScheme.MMH3, 0, key)


@given(st.lists(st.integers(0, MASK), max_size=40).map(lambda some: some * 2))
def test_sorted_distinct_digests_are_a_sorted_set(given: list[int]) -> None:
    """However often each occurs; none of none."""
    assert sorted_distinct(np.array(given, dtype=np.uint64)).tolist() == sorted(set(given))


@given(st.binary(max_size=200))
def test_packed_digests_come_back(packed: bytes) -> None:
    """Whole digests survive the round trip, in little-endian order; a cut one is refused."""
    if len(packed) % 8:
        with pytest.raises(InvalidInput, match="digests"):
            unpack_digests(packed)
        return
    hashed = unpack_digests(packed)
    assert hashed.tolist() == [value for (value,) in struct.iter_unpack("<Q", packed)]
    assert pack_digests(hashed) == packed


@pytest.mark.parametrize(("scheme", "key"), [(HashScheme.MMH3, None), (HashScheme.BLAKE2B, b"k" * 32)])
def test_the_digest_of_one_is_that_of_many(scheme: HashScheme, key: bytes | None) -> None:
    """Of digests with the highest bit set and without, at every seed's end."""
    elements = [b"element %d" % number for number in range(200)]
    for seed in (0, 5, (1 << 32) - 1):
        many = digests(elements, scheme, seed, key).tolist()
        assert [digest_one(element, scheme, seed, key) for element in elements] == many
        assert {digest >> 63 for digest in many} == {0, 1}
