"""Size estimates: unbiased where they claim to be, and intervals that hold the truth as often as they say."""

import math

import numpy as np
import pytest

from harness.bare_headers import header
from harness.shapes import FilterParameters
from veilset.core.encodings.bloom.comparison import size_from_ones, size_test
from veilset.core.estimates.releases import size_from_count
from veilset.core.privacy.counts import calibrate_count, integer_noise
from veilset.core.release.header import NoisyCount
from veilset.errors import InvalidInput

RUNS = 1000
# Of 1000 runs at 95% a correct interval holds between 906 and 985 with probability above 1 - 1e-6 (binomial tails),
# with a point to spare for the normal approximation.
FEWEST, MOST = 900, 990


def raw_ones(rng: np.random.Generator, shape: FilterParameters, size: int) -> int:
    """Ones of a raw vector: distinct values among n·k uniform marks."""
    return len(np.unique(rng.integers(0, shape.bits, size * shape.hashes)))


@pytest.mark.parametrize(
    ("bits", "hashes", "size", "flip"),
    [(64_000, 1, 2000, 0.27), (40_000, 3, 1500, 0.1), (8000, 1, 0, 0.3), (8000, 1, 60, 0.3), (2000, 2, 2200, 0.2)],
)
def test_interval_from_bits_holds_the_size(bits: int, hashes: int, size: int, flip: float) -> None:
    rng = np.random.default_rng()
    shape = FilterParameters(bits, hashes)
    held, estimates = 0, []
    for _ in range(RUNS):
        ones = raw_ones(rng, shape, size)
        noisy = int(rng.binomial(ones, 1 - flip) + rng.binomial(bits - ones, flip))
        held += size_test(bits, hashes, flip, noisy, 0.95).accepts(size)  # the interval holds what the test accepts
        estimates.append((noisy - flip * bits) / (1 - 2 * flip))
    print(f"held {held} of {RUNS}")
    assert FEWEST <= held <= MOST
    expected = bits * -math.expm1(size * hashes * math.log1p(-1 / bits))
    assert abs(np.mean(estimates) - expected) < 6 * np.std(estimates) / math.sqrt(RUNS)


def test_the_interval_holds_what_the_test_accepts() -> None:
    """And the estimate, which is moved into what is possible: never an empty interval, never one below 0."""
    for noisy in (0, 1500, 1600, 1601, 1700, 4000, 6390):
        found, test = size_from_ones(8000, 2, 0.2, noisy), size_test(8000, 2, 0.2, noisy, 0.95)
        assert 0 <= found.low <= found.estimate <= found.high
        width = min(found.high, test.high) - found.low
        inside, outside = 1e-6 * width, 1e-3 * width
        assert test.accepts(found.low + inside)
        assert found.low == 0 or not test.accepts(found.low - outside)
        if math.isfinite(found.high):
            assert test.accepts(found.high - inside)
            assert not test.accepts(found.high + outside)
    nothing = size_from_ones(8000, 2, 0.2, 1300)  # fewer ones than the flips alone make
    assert (nothing.low, nothing.estimate) == (0.0, 0.0)
    assert nothing.high > 0


def test_interval_from_a_count_holds_the_size() -> None:
    rng = np.random.default_rng()
    shape, size = FilterParameters(64_000, 2), 3000
    noise = calibrate_count(0.1, 1e-9, 2)
    held = 0
    for _ in range(RUNS):
        drawn = int(rng.integers(0, 2**64, dtype=np.uint64))
        value = size + integer_noise(noise, drawn)
        count = NoisyCount(value, str(noise.mechanism), noise.scale, 2, noise.epsilon, noise.delta)
        found = size_from_count(header(shape, 1 << 62, count))
        held += found.low <= size <= found.high
    print(f"held {held} of {RUNS}")
    assert FEWEST <= held <= MOST


def test_extremes_stay_in_order_and_a_full_vector_has_no_upper_end() -> None:
    for noisy in (0, 32, 64):
        found = size_from_ones(64, 1, 1 / 8, noisy)
        assert 0 <= found.low <= found.estimate <= found.high
        assert math.isinf(found.high) == (noisy == 64)
    assert size_from_ones(64, 1, 0.5, 32).high == math.inf


def test_a_count_that_was_not_bought_is_refused() -> None:
    with pytest.raises(InvalidInput, match="count"):
        size_from_count(header(FilterParameters(64, 1), 1 << 62))
    with pytest.raises(InvalidInput, match="confidence"):
        size_from_ones(64, 1, 0.25, 3, confidence=1.5)
