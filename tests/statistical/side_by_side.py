"""Many independent releases at once, and the bar for the share of them whose interval holds the truth.

The releases lie side by side in one long vector, so that the real functions build, perturb and read all of them in one
call each; positions are drawn at random, as the hash's are in the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.response import perturb
from veilset.core.encodings.bloom.vectors import set_bits

RUNS = 20_000
SHOWN = 1000
LOWEST, HIGHEST = 0.94, 0.965

Positions = NDArray[np.uint64]  # (runs, marks)


def fresh_generator() -> tuple[np.random.Generator, int]:
    """A generator and its seed, to be named if a test fails."""
    seed = int.from_bytes(os.urandom(4))
    return np.random.default_rng(seed), seed


def draw_positions(rng: np.random.Generator, bits: int, marks: int, runs: int = RUNS) -> Positions:
    """Uniform positions of one set's elements in every run's own stretch of the long vector; bits a multiple of 8."""
    starts = np.arange(runs, dtype=np.uint64)[:, np.newaxis] * np.uint64(bits)
    return rng.integers(0, bits, (runs, marks), dtype=np.uint32) + starts


def noisy_vectors(
    rng: np.random.Generator, bits: int, flip: float, marks: Sequence[Positions], runs: int = RUNS
) -> NDArray[np.uint8]:
    """All runs' vectors with these marks, perturbed; packed uint8 (runs · bits / 8,)."""
    raw = np.zeros(runs * bits // 8, dtype=np.uint8)
    for positions in marks:
        set_bits(raw, positions)
    return perturb(raw, runs * bits, round(flip * 2**64), rng.bytes)


def ones_of_runs(vectors: NDArray[np.uint8], runs: int = RUNS) -> NDArray[np.int64]:
    """Ones of each run's vector; int64 (runs,)."""
    return np.asarray(np.bitwise_count(vectors.reshape(runs, -1)).sum(axis=1, dtype=np.int64))


def check_coverage(what: str, held: Sequence[bool], seed: int) -> None:
    """Print the share of runs that held the truth, and fail unless it is between 94% and 96.5%.

    For a true coverage in [94.85%, 95.7%] one such check fails by chance with a probability below 3e-8 (binomial tails of
    20,000 runs), so fewer than thirty checks together below 1e-6. Every case that is checked was measured once with 150,000
    runs or more and lay in [94.9%, 95.35%], the two sizes taken together.
    """
    share = sum(held) / len(held)
    print(f"{what}: held in {share:.2%} of {len(held)} runs, {sum(held[:SHOWN])} of the first {SHOWN}")
    assert LOWEST <= share <= HIGHEST, f"{what}: {share:.4%} (seed {seed})"
