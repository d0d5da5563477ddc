"""Calibration: reference values, each rule against its definition, and the edges."""

from __future__ import annotations

import math
from decimal import Context, Decimal, FloatOperation, Inexact, Rounded, localcontext
from fractions import Fraction

import pytest

from harness.shapes import FilterParameters
from veilset.core.encodings.bloom.calibration import (
    COIN_SIDES,
    calibrate,
    flip_threshold,
    quantile_changed_bits,
    reached_delta,
)
from veilset.core.encodings.bloom.occupancy import changed_bits_distribution
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.core.privacy.budget import NANO, float_within, to_nano_epsilon
from veilset.core.privacy.limits import delta_is_large
from veilset.errors import InvalidInput

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
QUANTILE, EXACT, WORST_CASE = Calibration.W_QUANTILE, Calibration.EXACT, Calibration.WORST_CASE

# m, k, min_size, relation, δ, N, and the exact ε0 at ε = 3 to 9 digits; found with an independent implementation.
REFERENCE = [
    (524_288, 3, 100_000, REPLACE_ONE, 0.01, 6, "0.701863384"),
    (524_288, 5, 100_000, REPLACE_ONE, 1e-3, 9, "0.506952243"),
    (10**7, 7, 10**6, REPLACE_ONE, 1e-6, 14, "0.262997508"),
    (10**7, 7, 10**6, ADD_REMOVE, 1e-6, 7, "0.429214395"),
    (64, 4, 1, ADD_REMOVE, 1e-6, 4, "0.750001293"),
]


@pytest.mark.parametrize(("bits", "hashes", "min_size", "adjacency", "delta", "changed_bits", "epsilon0"), REFERENCE)
def test_reference_values(
    bits: int, hashes: int, min_size: int, adjacency: Adjacency, delta: float, changed_bits: int, epsilon0: str
) -> None:
    """N and the exact ε0 of five settings."""
    shape = FilterParameters(bits, hashes)
    quantile = calibrate(shape.bits, shape.hashes, PrivacyParameters(3.0, delta, adjacency, QUANTILE, 1, min_size))
    exact = calibrate(shape.bits, shape.hashes, PrivacyParameters(3.0, delta, adjacency, EXACT, 1, min_size))
    assert quantile.changed_bits == exact.changed_bits == changed_bits
    assert quantile.epsilon0 == pytest.approx(3.0 / changed_bits, rel=1e-15)
    assert f"{exact.epsilon0:.9f}" == epsilon0


@pytest.mark.parametrize(("bits", "hashes", "min_size", "adjacency", "delta"), [row[:5] for row in REFERENCE])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_exact_is_the_largest_allowed(
    bits: int, hashes: int, min_size: int, adjacency: Adjacency, delta: float, epsilon: float
) -> None:
    """At ε0 the promise holds; a part in 10^12 above it is broken."""
    distribution = changed_bits_distribution(bits, hashes, adjacency, 1, min_size)
    privacy = PrivacyParameters(epsilon, delta, adjacency, EXACT, 1, min_size)
    epsilon0 = calibrate(bits, hashes, privacy).epsilon0
    assert reached_delta(distribution, epsilon, epsilon0) <= delta
    assert reached_delta(distribution, epsilon, epsilon0 * (1 + 1e-12)) > delta


def test_quantile_by_definition() -> None:
    """N is the smallest w >= 1 whose tail is within δ, at the tails' own values and beside them."""
    distribution = tuple(Decimal(p) for p in ("0.5", "0.25", "0.125", "0.0625", "0.0625"))
    assert quantile_changed_bits(distribution, 1.0) == 1
    assert quantile_changed_bits(distribution, 0.25) == 1
    assert quantile_changed_bits(distribution, math.nextafter(0.25, 0)) == 2
    assert quantile_changed_bits(distribution, 0.0625) == 3
    assert quantile_changed_bits(distribution, 0.0624) == 4
    assert quantile_changed_bits(distribution, 0.0) == 4
    assert quantile_changed_bits(distribution[:1], 0.0) == 1
    assert quantile_changed_bits((Decimal(1), Decimal(0), Decimal(0)), 0.0) == 1


@pytest.mark.parametrize("epsilon", [1e-300, 0.1, 1.0, 3.0, math.pi, 64.0])
@pytest.mark.parametrize("hashes", [1, 3, 7, 31])
@pytest.mark.parametrize("calibration", [QUANTILE, WORST_CASE])
def test_shares_never_add_up_to_more(epsilon: float, hashes: int, calibration: Calibration) -> None:
    """N·ε0 is at most the decimal that ε stands for, without rounding, and the next float is too much."""
    privacy = PrivacyParameters(epsilon, 0.0, REPLACE_ONE, calibration)
    response = calibrate(1 << 20, hashes, privacy)
    assert response.changed_bits == 2 * hashes
    assert Fraction(response.epsilon0) * response.changed_bits <= Fraction(repr(epsilon))
    assert Fraction(math.nextafter(response.epsilon0, 65)) * response.changed_bits > Fraction(float_within(epsilon))


def test_without_delta_exact_and_quantile_cover_all_that_can_happen() -> None:
    """δ = 0 leaves ε/W_max, or ε over the bits that exist where these are fewer."""
    for calibration in (QUANTILE, EXACT):
        wide = calibrate(1 << 20, 4, PrivacyParameters(2.0, 0.0, ADD_REMOVE, calibration))
        assert (wide.changed_bits, wide.epsilon0) == (4, 0.5)
        narrow = calibrate(8, 32, PrivacyParameters(2.0, 0.0, ADD_REMOVE, calibration))
        assert (narrow.changed_bits, narrow.epsilon0) == (8, 0.25)


def test_worst_case_needs_no_distribution() -> None:
    """Where W_max passes 256 only the worst case is left, and the others say so."""
    shape = FilterParameters(1 << 20, 32)
    worst = calibrate(shape.bits, shape.hashes, PrivacyParameters(64.0, 1e-6, REPLACE_ONE, WORST_CASE, 1000))
    # The float 0.001 is above a thousandth: 64 000 of them would pass 64.
    assert (worst.changed_bits, worst.epsilon0) == (64_000, math.nextafter(0.001, 0))
    for calibration in (QUANTILE, EXACT):
        with pytest.raises(InvalidInput, match="worst-case") as caught:
            calibrate(shape.bits, shape.hashes, PrivacyParameters(64.0, 1e-6, REPLACE_ONE, calibration, 1000))
        assert caught.value.field == "elements_per_user"


@pytest.mark.parametrize("calibration", list(Calibration))
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 64.0])
def test_threshold_really_gives_no_more_than_epsilon0(calibration: Calibration, epsilon: float) -> None:
    """ln((2^64 - T)/T) <= ε0 in 60 digits, and the flip probability is T/2^64."""
    response = calibrate(1 << 20, 5, PrivacyParameters(epsilon, 1e-6, ADD_REMOVE, calibration, 1, 99))
    assert response.threshold == flip_threshold(response.epsilon0)
    assert response.flip_probability == response.threshold / COIN_SIDES
    with localcontext(prec=60):
        effective = (Decimal(COIN_SIDES - response.threshold) / response.threshold).ln()
    assert effective <= Decimal(response.epsilon0)


def test_a_full_filter_still_flips() -> None:
    """Where the promised size covers every bit no ε0 is too large; T stays at least 1."""
    privacy = PrivacyParameters(1.0, 1e-9, ADD_REMOVE, EXACT, 1, 10**12)
    response = calibrate(64, 4, privacy)
    assert (response.epsilon0, response.threshold, response.changed_bits) == (64.0, 1, 1)


def test_vanishing_epsilon() -> None:
    """The smallest ε of all: w-quantile gives a fair coin, exact what δ alone allows."""
    shape = FilterParameters(1 << 20, 3)
    quantile = calibrate(shape.bits, shape.hashes, PrivacyParameters(5e-324, 1e-6, ADD_REMOVE, QUANTILE))
    assert (quantile.epsilon0, quantile.threshold) == (0.0, 1 << 63)
    exact = calibrate(shape.bits, shape.hashes, PrivacyParameters(1e-300, 1e-6, ADD_REMOVE, EXACT))
    distribution = changed_bits_distribution(1 << 20, 3, ADD_REMOVE, 1, 1)
    assert 1e-6 < exact.epsilon0 < 2e-6
    assert reached_delta(distribution, 1e-300, exact.epsilon0) <= 1e-6


@pytest.mark.parametrize("delta", [5e-324, 1e-100, 1e-50])
def test_vanishing_delta_is_treated_as_none(delta: float) -> None:
    """A δ below the arithmetic's own margin buys nothing; it is neither refused nor overspent."""
    response = calibrate(1 << 20, 4, PrivacyParameters(3.0, delta, ADD_REMOVE, EXACT))
    assert response.epsilon0 == 0.75


def test_does_not_depend_on_the_callers_decimal_context() -> None:
    """A caller who computes with 5 digits and traps every rounding gets the same noise."""
    shape = FilterParameters(12_349, 4)
    privacy = PrivacyParameters(1.0, 1e-6, REPLACE_ONE, EXACT, 1, 500)
    with localcontext(Context(prec=5, traps=[Inexact, Rounded, FloatOperation])):
        response = calibrate(shape.bits, shape.hashes, privacy)
        distribution = changed_bits_distribution(12_349, 4, REPLACE_ONE, 1, 500)
        reached = reached_delta(distribution, 1.0, response.epsilon0)
    assert reached == reached_delta(distribution, 1.0, response.epsilon0) <= 1e-6
    assert response.epsilon0 == pytest.approx(calibrate(12_350, 4, privacy).epsilon0, rel=1e-3)


def test_delta_is_large() -> None:
    """Above one in ten of the promised set."""
    assert delta_is_large(0.01, 100_000)
    assert not delta_is_large(1e-9, 100_000)
    assert not delta_is_large(1e-9, 10**8)
    assert delta_is_large(1.000001e-9, 10**8)
    assert not delta_is_large(0.1, 1)


def test_the_noise_keeps_the_decimal_that_is_charged() -> None:
    """0.1 as a float lies above 0.1; charged is 0.1, so the noise must be for no more than that."""
    for tenths in range(1, 640):
        epsilon = tenths / 10
        privacy = PrivacyParameters(epsilon, 0.0, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)
        spent = 3 * Fraction(calibrate(1000, 3, privacy).epsilon0)
        assert spent <= Fraction(tenths, 10) == Fraction(to_nano_epsilon(epsilon), NANO)
