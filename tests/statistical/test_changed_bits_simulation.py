"""The distribution of W against bits that really change when random positions are set.

False-alarm rate: at most 1e-6 per run for all tests of this file together (exact binomial tails, union bound).
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from veilset.core.encodings.bloom.occupancy import changed_bits_distribution
from veilset.core.params import Adjacency

BITS, HASHES, USER, MIN_SIZE = 256, 4, 2, 60
TRIALS, BATCH = 100_000, 10_000
FALSE_ALARM = 1e-6 / len(Adjacency)


def vectors(generator: np.random.Generator, elements: int) -> NDArray[np.bool_]:
    """One vector of BITS bits a row, with the positions of that many elements set."""
    positions = generator.integers(0, BITS, size=(BATCH, elements * HASHES))
    result = np.zeros((BATCH, BITS), dtype=np.bool_)
    result[np.arange(BATCH)[:, None], positions] = True
    return result


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_simulated_neighbours_differ_as_computed(adjacency: Adjacency) -> None:
    """Every count of changed bits is seen as often as its probability says."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    generator = np.random.default_rng(seed)
    distribution = changed_bits_distribution(BITS, HASHES, adjacency, USER, MIN_SIZE)
    seen = np.zeros(len(distribution), dtype=np.int64)
    for _ in range(TRIALS // BATCH):
        rest = vectors(generator, MIN_SIZE - USER)
        one = rest | vectors(generator, USER)
        two = rest | vectors(generator, USER) if adjacency is Adjacency.REPLACE_ONE else rest
        seen += np.bincount((one ^ two).sum(axis=1), minlength=len(distribution))
    level = FALSE_ALARM / (2 * len(distribution))
    for w, probability in enumerate(distribution):
        tail = min(binom.cdf(seen[w], TRIALS, float(probability)), binom.sf(seen[w] - 1, TRIALS, float(probability)))
        assert tail >= level, f"W = {w}: {seen[w]} of {TRIALS}, expected {float(probability):.3g} (seed {seed})"
