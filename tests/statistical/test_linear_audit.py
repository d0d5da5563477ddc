"""Black-box lower bounds on the epsilon of whole linear releases, by the code and the entropy of production.

A correct mechanism stays below ε by proof; a bound over the floor says that the audit sees. All checks of this file together
fail a correct mechanism less than once in a million runs. Planted faults have to be caught.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.bounds import chance_below_floor, epsilon_lower_bound
from linear_systems import yes_counts
from veilset.core.encodings.interface import Digests, RandomBytes
from veilset.core.encodings.linear import encode as encoding
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import Adjacency, PrivacyParameters

ERROR = 1e-9
COLUMNS, BAND = 12, 5
TARGET = 0x7123_4567_89AB_CDEF
OTHERS = sorted((i * 0x9E37_79B9_7F4A_7C15 + 0x1234_5678) % (1 << 64) for i in range(1, 40))
"""Elements that are in both sets."""


def parameters(epsilon: float, planes: int, relation: Adjacency = Adjacency.ADD_REMOVE) -> LinearParameters:
    dimensions = {"columns": COLUMNS, "planes": planes, "band": BAND}
    return LinearParameters.calibrate(PrivacyParameters(epsilon, 0.0, relation), dimensions)


def neighbours(others: int) -> tuple[list[int], list[int]]:
    """With the target, and without."""
    rest = OTHERS[:: len(OTHERS) // others][:others] if others else []
    return sorted([*rest, TARGET]), rest


def lower_bound(epsilon: float, planes: int, others: int, trials: int, releases: int = 1) -> float:
    """The largest epsilon that the readings of the target prove, either way; it errs with at most ERROR."""
    present, absent = yes_counts(parameters(epsilon, planes), neighbours(others), TARGET, trials, releases)
    bound = epsilon_lower_bound(present, absent, ERROR)
    print(f"epsilon {epsilon}, q {1 << planes}, {others} others, {releases} releases: at least {bound:.4f}")
    return bound


def floor_is_safe(floor: float, epsilon: float, planes: int, trials: int) -> float:
    """Chance that a correct mechanism's bound is below the floor, where the target's row is independent of all others."""
    law = parameters(epsilon, planes)
    q, d = law.q, law.drop_probability
    return chance_below_floor(floor, trials, (1 - d + d / q, 1 / q), ERROR)


SHORT = [(1.0, 2, 0, 20_000, 0.8), (2.0, 3, 2, 10_000, 0.8), (3.0, 4, 2, 10_000, 0.8)]
"""ε, planes, others, trials on each side, floor as a share of ε; the target's row is independent of the others'."""
LONG = {(1.0, 1): 500_000, (1.0, 4): 1_600_000, (2.0, 4): 400_000}
"""Trials on each side for ε and planes where the rarest reading needs more than 300,000."""


@pytest.mark.parametrize(("epsilon", "planes", "others", "trials", "share"), SHORT)
def test_lower_bound_is_just_below_epsilon(epsilon: float, planes: int, others: int, trials: int, share: float) -> None:
    assert floor_is_safe(share * epsilon, epsilon, planes, trials) < 1e-8
    assert share * epsilon <= lower_bound(epsilon, planes, others, trials) <= epsilon


@pytest.mark.audit
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("planes", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 3.0])
def test_long_lower_bound_is_within_six_per_cent(epsilon: float, planes: int) -> None:
    trials = LONG.get((epsilon, planes), 300_000)
    assert floor_is_safe(0.94 * epsilon, epsilon, planes, trials) < 1e-8
    assert 0.94 * epsilon <= lower_bound(epsilon, planes, 0, trials) <= epsilon


@pytest.mark.audit
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("others", [8, 12, 39], ids=["near full", "full", "over capacity"])
@pytest.mark.parametrize(("epsilon", "planes"), [(1.0, 2), (2.0, 1), (3.0, 4)])
def test_full_releases_stay_below_epsilon(epsilon: float, planes: int, others: int) -> None:
    assert lower_bound(epsilon, planes, others, 150_000) <= epsilon


@pytest.mark.audit
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("epsilon", "planes"), [(0.5, 1), (1.0, 2), (1.5, 4)])
def test_two_releases_cost_twice_epsilon(epsilon: float, planes: int) -> None:
    """And no more; the bound shows that the audit sees both."""
    assert epsilon < lower_bound(epsilon, planes, 1, 200_000, releases=2) <= 2 * epsilon


# Planted faults: the same mechanism with one line wrong. Each has to break the bound, or the rate that is promised.


Chunks = Iterable[Digests]


def without_check(chunks: Chunks) -> Chunks:
    return chunks


def coin_from_digest(chunks: Chunks, threshold: int, _: RandomBytes) -> Chunks:
    for digests in chunks:
        yield digests[digests >= np.uint64(threshold)]


def no_coin(chunks: Chunks, *_: object) -> Chunks:
    return chunks


def fixed_free_columns(words: int, planes: int, _: object) -> NDArray[np.uint64]:
    return np.full((words, planes), 0xA5A5_5A5A_C3C3_3C3C, np.uint64)


def one_plane_for_all(words: int, planes: int, random_bytes: RandomBytes) -> NDArray[np.uint64]:
    drawn = np.frombuffer(random_bytes(8 * words), np.uint64)
    return np.repeat(drawn[:, np.newaxis], planes, axis=1)


def fault_bound(
    sides: tuple[list[int], list[int]], epsilon: float, planes: int, trials: int = 3000, releases: int = 1
) -> float:
    counts = yes_counts(parameters(epsilon, planes), sides, TARGET, trials, releases)
    return epsilon_lower_bound(*counts, ERROR)


def test_duplicates_behind_the_coins_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "strictly_increasing", without_check)
    assert fault_bound(([TARGET, TARGET], []), 1.0, 1) > 1.0


@pytest.mark.parametrize(
    ("name", "fault"),
    [("keep_some", coin_from_digest), ("keep_some", no_coin), ("random_planes", fixed_free_columns)],
    ids=["coin derived from the digest", "no coin", "fixed free columns"],
)
def test_missing_randomness_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, fault: object) -> None:
    monkeypatch.setattr(encoding, name, fault)
    assert fault_bound(neighbours(0), 1.0, 2) > 1.0


def given(drawn: bytes, _: int) -> bytes:
    return drawn


def test_coins_kept_between_releases_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One release is as private as ever, two are not."""
    coins: dict[int, bytes] = {}
    real = encoding.keep_some

    def kept_coins(chunks: Chunks, threshold: int, random_bytes: RandomBytes) -> Chunks:
        for digests in chunks:
            drawn = b"".join(coins.setdefault(digest, bytes(random_bytes(8))) for digest in digests.tolist())
            yield from real([digests], threshold, partial(given, drawn))

    monkeypatch.setattr(encoding, "keep_some", kept_coins)
    counts = yes_counts(parameters(1.0, 3), neighbours(0), TARGET, 10_000, releases=2, before=coins.clear)
    assert epsilon_lower_bound(*counts, ERROR) > 2.0


def test_one_plane_for_all_is_caught_by_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaks nothing, and answers yes to half of all non-members."""
    _, honest = yes_counts(parameters(1.0, 4), neighbours(0), TARGET, 2000)
    monkeypatch.setattr(encoding, "random_planes", one_plane_for_all)
    _, faulty = yes_counts(parameters(1.0, 4), neighbours(0), TARGET, 2000)
    assert abs(honest[1] - 2000 / 16) < 6 * math.sqrt(2000 * 15 / 256)
    assert faulty[1] > 2000 / 16 + 6 * math.sqrt(2000 * 15 / 256)
