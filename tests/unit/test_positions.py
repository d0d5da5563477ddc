"""Digests to positions: exact integers against Python's, and the uniformity that the W bound needs.

False-alarm rate of the statistical tests of this file: less than 1e-6 per run, all together.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from veilset.core.elements.hashing import digests, unpack_digests
from veilset.core.encodings.bloom.vectors import _scale, positions
from veilset.core.params import MAX_BITS, MAX_HASHES, MAX_SEED, HashScheme

MASK = (1 << 64) - 1
FALSE_ALARM = 1e-8  # of one chi-square statistic; there are fewer than 100

words = st.integers(0, MASK)
lengths = st.one_of(
    st.integers(1, MAX_BITS), st.sampled_from([1, 2, 8, 1 << 32, (1 << 32) - 1, (1 << 32) + 1, MAX_BITS])
)


def plain_position(h: int, i: int, bits: int) -> int:
    """The i-th position by the formula of `core.elements.hashing`, without any limit on the size of integers."""
    if i == 0:
        return h * bits >> 64
    z = (h + i * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return (z ^ z >> 31) * bits >> 64


@pytest.mark.parametrize(
    ("element", "seed", "bits", "wanted"),
    [
        (b"alice@example.com", 0, 1009, [624, 914, 855, 178, 64, 170, 76, 207]),
        (b"alice@example.com", MAX_SEED, MAX_BITS, [1033290923883, 39841489009, 859243721689, 997399643404]),
        (b"bob", 7, 1_000_003, [284116, 178979, 800312, 438229, 556032]),
        (b"", 0, 524288, [0, 463109, 226244]),
    ],
)
def test_golden_positions(element: bytes, seed: int, bits: int, wanted: list[int]) -> None:
    """Values that never change under scheme mmh3-1. Computed by `plain_position`."""
    assert positions(digests([element], HashScheme.MMH3, seed), bits, len(wanted)).tolist() == [wanted]


@settings(max_examples=300)
@given(st.lists(words, max_size=5), lengths, st.integers(1, MAX_HASHES))
@example([MASK, 0, 1, 1 << 63, 0x9E3779B97F4A7C15], MAX_BITS, MAX_HASHES)
def test_positions_are_the_formula(given: list[int], bits: int, hashes: int) -> None:
    """Digests of every kind, also all zeros and all ones."""
    hashed = np.array(given, dtype=np.uint64)
    found = positions(hashed, bits, hashes)
    assert found.shape == (len(given), hashes)
    assert found.dtype == np.uint64
    assert found.tolist() == [[plain_position(h, i, bits) for i in range(hashes)] for h in given]


@settings(max_examples=100)
@given(st.lists(words, max_size=50), lengths)
def test_sorted_digests_have_sorted_first_positions(given: list[int], bits: int) -> None:
    """So that they fill a vector from front to back."""
    first = positions(np.sort(np.array(given, dtype=np.uint64)), bits, 2)[:, 0].tolist()
    assert first == sorted(first)


@settings(max_examples=300)
@given(words, lengths)
@example(MASK, MAX_BITS)
@example(MASK, (1 << 32) - 1)
@example(0xFFFFFFFF, MAX_BITS - 1)
@example(0xFFFFFFFF_00000000, MAX_BITS - 1)
def test_scaling_is_exact(z: int, bits: int) -> None:
    """floor(z·m / 2^64) for every m up to 2^40, at z itself, the ends, and where the quotient steps up."""
    step = -(-((z * bits >> 64) << 64) // bits)  # the least z with this quotient
    chosen = [value for value in (z, 0, MASK, 1 << 32, (1 << 32) - 1, step - 1, step) if 0 <= value <= MASK]
    assert _scale(np.array(chosen, dtype=np.uint64), bits).tolist() == [value * bits >> 64 for value in chosen]


@pytest.mark.parametrize("scheme", list(HashScheme))
@pytest.mark.parametrize(("bits", "hashes"), [(8, 32), (1009, 7), ((1 << 32) + 15, 3), (MAX_BITS, 32)])
def test_positions_lie_in_the_vector(scheme: HashScheme, bits: int, hashes: int) -> None:
    """Audit A10: at most k distinct positions, all in [0, m), for 50 000 elements and as many adversarial digests."""
    seed = int.from_bytes(os.urandom(4), "little")
    key = os.urandom(32) if scheme is HashScheme.BLAKE2B else None
    ordinary = digests([b"element %d" % i for i in range(50_000)], scheme, seed, key)
    edges = np.array([0, 1, 2, 1 << 31, 1 << 32, 1 << 63, (1 << 63) - 1, MASK - 1, MASK], dtype=np.uint64)
    adversarial = unpack_digests(os.urandom(8 * 50_000)).copy()
    adversarial[::2] = np.resize(edges, len(adversarial[::2]))
    for hashed in (ordinary, adversarial):
        found = positions(hashed, bits, hashes)
        assert found.shape == (50_000, hashes)
        assert int(found.max()) < bits


def assert_uniform(counts: NDArray[np.intp]) -> None:
    """Chi-square test of equal chances for all cells, at FALSE_ALARM."""
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2).sum() / expected)
    tail = float(chi2.sf(statistic, counts.size - 1))
    assert tail >= FALSE_ALARM, f"chi-square {statistic:.1f} on {counts.size - 1} degrees of freedom"


@pytest.mark.parametrize("scheme", list(HashScheme))
def test_positions_are_uniform_and_independent(scheme: HashScheme) -> None:
    """200 000 counted names under a fresh seed: each of 5 positions over 1009 cells, each pair over 31 x 31."""
    seed = int.from_bytes(os.urandom(4), "little")
    key = os.urandom(32) if scheme is HashScheme.BLAKE2B else None
    hashed = digests([b"user%d@example.com" % i for i in range(200_000)], scheme, seed, key)
    single = positions(hashed, 1009, 5).astype(np.intp)
    paired = positions(hashed, 31, 5).astype(np.intp)
    for i in range(5):
        assert_uniform(np.bincount(single[:, i], minlength=1009))
        for j in range(i):
            assert_uniform(np.bincount(31 * paired[:, i] + paired[:, j], minlength=31 * 31))
