"""Our privacy profile against Google's dp-accounting, an independent implementation of privacy loss distributions."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from veilset.core.encodings.bloom.calibration import calibrate, privacy_profile, reached_delta
from veilset.core.encodings.bloom.occupancy import changed_bits_distribution
from veilset.core.params import Adjacency, Calibration, PrivacyParameters

AGREEMENT = 1e-9
INTERVAL = 1e-4  # of the privacy loss, dp-accounting's own default


def loss_of(flip_probability: float) -> float:
    """ε0 = ln((1-p)/p), written as dp-accounting computes it, so that its grid can carry the loss exactly."""
    return math.log(1 - flip_probability) - math.log(flip_probability)


@pytest.mark.parametrize("flip_probability", [0.05, 0.25, 0.4, 0.49])
@pytest.mark.parametrize("changed_bits", [1, 2, 7, 20, 64, 256])
def test_profile_on_its_own_grid(changed_bits: int, flip_probability: float) -> None:
    """With the grid as wide as one loss nothing is discretised: H_w agrees to 1e-9 at every ε."""
    epsilon0 = loss_of(flip_probability)
    one_bit = pld.from_randomized_response(2 * flip_probability, 2, value_discretization_interval=epsilon0)
    composed = one_bit.self_compose(changed_bits) if changed_bits > 1 else one_bit
    for epsilon in (0.0, 0.1, 1.0, 2.5 * epsilon0, 3.0, 5.5 * epsilon0, 8.0):
        theirs = float(composed.get_delta_for_epsilon(epsilon))
        assert privacy_profile(changed_bits, epsilon, epsilon0) == pytest.approx(theirs, rel=0, abs=AGREEMENT)


@pytest.mark.parametrize("epsilon0", [0.1, 0.4292143951153843, 2.0])
@pytest.mark.parametrize("changed_bits", [1, 7, 14])
def test_profile_within_the_discretisation(changed_bits: int, epsilon0: float) -> None:
    """At any ε0 their pessimistic and optimistic figures enclose ours, and are one grid step a bit apart at most."""
    noise = 2 / (1 + math.exp(epsilon0))
    above = pld.from_randomized_response(noise, 2, True, INTERVAL)
    below = pld.from_randomized_response(noise, 2, False, INTERVAL)
    if changed_bits > 1:
        above, below = above.self_compose(changed_bits), below.self_compose(changed_bits)
    step = (changed_bits + 1) * INTERVAL
    for epsilon in (0.25, 1.0, 3.0):
        ours = privacy_profile(changed_bits, epsilon, epsilon0)
        high, low = float(above.get_delta_for_epsilon(epsilon)), float(below.get_delta_for_epsilon(epsilon))
        assert low - AGREEMENT <= ours <= high + AGREEMENT
        assert high <= privacy_profile(changed_bits, epsilon - step, epsilon0) + AGREEMENT
        assert low >= privacy_profile(changed_bits, epsilon + step, epsilon0) - AGREEMENT


SETTINGS = [
    (524_288, 3, 100_000, Adjacency.REPLACE_ONE, 0.01),
    (64, 4, 20, Adjacency.REPLACE_ONE, 1e-3),
    (10**7, 7, 10**6, Adjacency.ADD_REMOVE, 1e-6),
    (4096, 16, 300, Adjacency.ADD_REMOVE, 1e-6),
]


@pytest.mark.parametrize(("bits", "hashes", "min_size", "adjacency", "delta"), SETTINGS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_release_on_its_own_grid(
    bits: int, hashes: int, min_size: int, adjacency: Adjacency, delta: float, epsilon: float
) -> None:
    """The whole release, seed included: their δ at the exact calibration is the δ asked, to 1e-9."""
    distribution = changed_bits_distribution(bits, hashes, adjacency, 1, min_size)
    privacy = PrivacyParameters(epsilon, delta, adjacency, Calibration.EXACT, 1, min_size)
    epsilon0 = calibrate(bits, hashes, privacy).epsilon0
    kept = 1 / (1 + math.exp(-epsilon0))
    losses: dict[int, float] = {}
    for w, probability in enumerate(distribution):
        for agreeing in range(w + 1):
            loss = 2 * agreeing - w
            losses[loss] = losses.get(loss, 0.0) + float(probability) * float(binom.pmf(agreeing, w, kept))
    release = pld.PrivacyLossDistribution.create_from_rounded_probability(losses, 0.0, epsilon0)
    theirs = float(release.get_delta_for_epsilon(epsilon))
    assert theirs == pytest.approx(delta, rel=0, abs=AGREEMENT)
    assert reached_delta(distribution, epsilon, epsilon0) == pytest.approx(theirs, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("bits", "hashes", "min_size", "adjacency", "delta"), SETTINGS)
def test_release_from_its_two_output_laws(
    bits: int, hashes: int, min_size: int, adjacency: Adjacency, delta: float
) -> None:
    """Given only the two laws of (W, agreeing bits), their bounds enclose the δ reached, at every rule's ε0."""
    epsilon = 3.0
    distribution = changed_bits_distribution(bits, hashes, adjacency, 1, min_size)
    for rule in (Calibration.W_QUANTILE, Calibration.EXACT):
        privacy = PrivacyParameters(epsilon, delta, adjacency, rule, 1, min_size)
        epsilon0 = calibrate(bits, hashes, privacy).epsilon0
        kept = 1 / (1 + math.exp(-epsilon0))
        upper, lower = {}, {}
        for w, probability in enumerate(distribution):
            if probability:
                for agreeing in range(w + 1):
                    seed = math.log(probability)
                    upper[w, agreeing] = seed + float(binom.logpmf(agreeing, w, kept))
                    lower[w, agreeing] = seed + float(binom.logpmf(w - agreeing, w, kept))
        above = pld.from_two_probability_mass_functions(lower, upper, True, INTERVAL)
        below = pld.from_two_probability_mass_functions(lower, upper, False, INTERVAL)
        ours = reached_delta(distribution, epsilon, epsilon0)
        assert float(below.get_delta_for_epsilon(epsilon)) <= ours + 1e-15
        assert float(above.get_delta_for_epsilon(epsilon)) >= ours - 1e-15
        assert float(above.get_delta_for_epsilon(epsilon + 2 * INTERVAL)) <= delta + 1e-15


def test_releases_under_one_seed_compose_by_adding() -> None:
    """Two releases double every privacy loss count: their true δ at 2ε stays below twice the δ of one at ε."""
    for bits, hashes, min_size, adjacency, delta in SETTINGS[:3]:
        distribution = changed_bits_distribution(bits, hashes, adjacency, 1, min_size)
        privacy = PrivacyParameters(1.0, delta, adjacency, Calibration.EXACT, 1, min_size)
        flip_probability = calibrate(bits, hashes, privacy).flip_probability
        epsilon0 = loss_of(flip_probability)
        one_bit = pld.from_randomized_response(2 * flip_probability, 2, value_discretization_interval=epsilon0)
        both = sum(
            float(probability) * float(one_bit.self_compose(2 * w).get_delta_for_epsilon(2.0))
            for w, probability in enumerate(distribution)
            if w and probability
        )
        assert both <= 2 * delta + AGREEMENT
        ours = math.fsum(float(p) * privacy_profile(2 * w, 2.0, epsilon0) for w, p in enumerate(distribution))
        assert ours == pytest.approx(both, rel=0, abs=AGREEMENT)
