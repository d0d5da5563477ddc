"""Twelve of the DPBloomfilter paper's measurements, made again with this library: build, perturb, query.

False-alarm rate: at most 1e-6 per run of the file. The elements asked about are chosen so that their answers are
independent: members whose positions are k distinct ones that no other chosen member has, and fresh non-members. Their
counts scatter with a known standard deviation (for the false positives that of the vector's ones is added, from the
occupancy of the bits and from the flips). Each of the 24 tests checks first that the prediction is at least 6 standard deviations
inside the half percentage point, so that chance takes a count outside it less than 4e-9 of the time.
"""

from __future__ import annotations

import csv
import math
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.shapes import FilterParameters
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.law import expected_fill, expected_ones_fraction, reading_law
from veilset.core.encodings.bloom.response import perturb
from veilset.core.encodings.bloom.vectors import count_ones_per_element, insert, positions
from veilset.core.encodings.decoder import Rule, make_decoder
from veilset.core.encodings.interface import count_ones
from veilset.core.params import Adjacency, PrivacyParameters

FIGURES = Path(__file__).parents[1] / "data" / "dpbloomfilter_error_rates.csv"
CHOSEN = {(1, 2), (1, 6), (1, 30), (2, 3), (2, 9), (2, 20), (3, 6), (3, 18), (4, 8), (4, 24), (5, 8), (5, 21)}
BITS, SIZE, DELTA = 524_288, 100_000, 0.01
RELEASES, OTHERS = 64, 16_000  # noisy vectors of one filter, and fresh non-members asked of each
CANDIDATES = 20_000
HALF_A_POINT = 0.005
DEVIATIONS = 6.0


def rows() -> list[tuple[int, int, float, float]]:
    """Hashes, ε, and the two measured shares of the twelve."""
    lines = (line for line in FIGURES.read_text().splitlines() if not line.startswith("#"))
    return [
        (
            int(row["hashes"]),
            int(float(row["epsilon"])),
            float(row["false_negative_percent"]) / 100.0,
            float(row["false_positive_percent"]) / 100.0,
        )
        for row in csv.DictReader(lines)
        if (int(row["hashes"]), float(row["epsilon"])) in CHOSEN
    ]


def named(kind: str, count: int) -> list[bytes]:
    return [f"{kind}-{number}".encode() for number in range(count)]


def readings(vector: NDArray[np.uint8], found: NDArray[np.uint64]) -> NDArray[np.int64]:
    """What elements of these positions read."""
    ones, distinct = count_ones_per_element(found, vectors.test_bits(vector, found))
    return np.asarray(distinct * (found.shape[1] + 1) + ones)


@lru_cache(maxsize=1)
def built(hashes: int) -> tuple[FilterParameters, NDArray[np.uint8], NDArray[np.uint64]]:
    """A filter of SIZE elements under a fresh seed, and the positions of members that share none with each other."""
    shape = FilterParameters(BITS, hashes, seed=int.from_bytes(os.urandom(4), "little"))
    members = digests(named("member", SIZE), shape.scheme, shape.seed)
    vector = np.zeros(shape.vector_bytes, dtype=np.uint8)
    insert(vector, BITS, hashes, members)
    found = positions(members[:CANDIDATES], BITS, hashes)
    uses = np.bincount(found.ravel(), minlength=BITS)
    return shape, vector, found[(uses[found] == 1).all(axis=1)]


@pytest.mark.parametrize(
    ("hashes", "epsilon", "false_negatives", "false_positives"),
    [pytest.param(*row, marks=[pytest.mark.audit] if number % 3 else []) for number, row in enumerate(rows())],
    ids=str,
)
def test_simulation_meets_the_paper(hashes: int, epsilon: int, false_negatives: float, false_positives: float) -> None:
    """Both error rates of the all-ones rule, within half a percentage point."""
    shape, vector, members = built(hashes)
    response = calibrate(
        shape.bits, shape.hashes, PrivacyParameters(epsilon, DELTA, Adjacency.REPLACE_ONE, min_size=SIZE)
    )
    others = positions(
        digests(named(f"other of {epsilon}", RELEASES * OTHERS), shape.scheme, shape.seed), BITS, hashes
    ).reshape(RELEASES, OTHERS, hashes)
    missed = mistaken = 0
    for release in range(RELEASES):
        noisy = perturb(vector, BITS, response.threshold, os.urandom)
        law = reading_law(BITS, hashes, response.flip_probability, count_ones(noisy) / BITS)
        decoder = make_decoder(law, rule=Rule.ALL_ONES)
        asked = others[release]
        missed += int((~decoder.decide(readings(noisy, members))).sum())
        mistaken += int(decoder.decide(readings(noisy, asked)).sum())

    fill = float(expected_fill(SIZE, BITS, hashes))
    fraction = float(expected_ones_fraction(fill, response.flip_probability))
    expected_miss = 1.0 - (1.0 - response.flip_probability) ** hashes
    expected_mistake = fraction**hashes
    of_members, of_others = RELEASES * len(members), RELEASES * OTHERS
    scatter_miss = math.sqrt(expected_miss * (1.0 - expected_miss) / of_members)
    load = SIZE * hashes / BITS
    collisions = math.exp(-load) * (1.0 - (1.0 + load) * math.exp(-load))
    slope = hashes * fraction ** (hashes - 1)
    ones_variance = (collisions + fraction * (1.0 - fraction) / RELEASES) / BITS
    scatter_mistake = math.sqrt(expected_mistake * (1.0 - expected_mistake) / of_others + slope**2 * ones_variance)
    for seen, expected, scatter, paper in (
        (missed / of_members, expected_miss, scatter_miss, false_negatives),
        (mistaken / of_others, expected_mistake, scatter_mistake, false_positives),
    ):
        print(
            f"k = {hashes}, ε = {epsilon}: paper {paper:.4%}, expected {expected:.4%}, seen {seen:.4%} ± {scatter:.4%}"
        )
        assert abs(expected - paper) + DEVIATIONS * scatter <= HALF_A_POINT, "too few trials for this tolerance"
        assert seen == pytest.approx(paper, abs=HALF_A_POINT)


def test_twelve_rows_are_chosen() -> None:
    """None of the chosen is missing from the figures."""
    assert len(rows()) == len(CHOSEN) == 12
