"""Noisy counts: privacy by numerical integration, inversion, and the edges. The law as drawn: test_count_privacy.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, logistic, norm

from veilset.core.privacy.counts import (
    MAX_SENSITIVITY,
    RANDOM_INTEGERS,
    CountMechanism,
    calibrate_count,
    grid_delta,
    integer_noise,
    normal_tail,
    smallest_delta,
)
from veilset.core.privacy.exact import decimal_digits
from veilset.errors import InvalidInput

LAPLACE, LOGISTIC, GAUSSIAN = CountMechanism
LAWS = {LAPLACE: laplace, LOGISTIC: logistic, GAUSSIAN: norm}
EXTREMES = {LAPLACE: 44.361, LOGISTIC: 45.055, GAUSSIAN: 9.156}  # scales at which a tail is 2^-65

random_integers = st.integers(0, RANDOM_INTEGERS - 1)
mechanisms = st.sampled_from(CountMechanism)
epsilons = st.floats(-4.0, 1.8).map(lambda x: 10.0**x)
deltas = st.floats(-7.0, -1.0).map(lambda x: min(0.1, 10.0**x))
sensitivities = st.sampled_from([1, 2, 7, 1000])


def privacy_loss(mechanism: CountMechanism, x: float, shift: float) -> float:
    """ln f(x) - ln f(x + shift) of the law of scale 1."""
    if mechanism is LAPLACE:
        return shift if x >= 0.0 else max(-shift, 2.0 * x + shift)
    if mechanism is LOGISTIC:
        return shift + 2.0 * (math.log1p(math.exp(-x - shift)) - math.log1p(math.exp(-x)))
    return shift * (x + shift / 2.0)


def integrated_delta(mechanism: CountMechanism, shift: float, epsilon: float) -> float:
    """∫ (f(x) - e^ε·f(x + Δ/s))₊ dx for the law of scale 1, from where the loss first passes ε, by quadrature."""
    low, high = -60.0 - shift, 60.0 + shift
    if privacy_loss(mechanism, high, shift) <= epsilon:
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (low, middle) if privacy_loss(mechanism, middle, shift) > epsilon else (middle, high)

    def gain(x: float) -> float:
        return -float(LAWS[mechanism].pdf(x)) * math.expm1(epsilon - privacy_loss(mechanism, x, shift))

    ends = [high, *(x for x in (-shift, 0.0) if x > high), max(high, 0.0) + 5.0, max(high, 0.0) + 40.0]
    return sum(quad(gain, left, right, epsabs=1e-20, epsrel=1e-9, limit=200)[0] for left, right in pairwise(ends))


def test_each_mechanism_wins_somewhere() -> None:
    """Laplace at ordinary ε, Gaussian at small ε with a large δ, logistic between."""
    assert calibrate_count(1.0, 1e-9, 1).mechanism is LAPLACE
    assert calibrate_count(0.1, 0.01, 1).mechanism is GAUSSIAN
    assert calibrate_count(0.03, 1e-3, 1).mechanism is LOGISTIC


@pytest.mark.parametrize("mechanism", CountMechanism)
@pytest.mark.parametrize("sensitivity", [1, 5])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.01), (1.0, 1e-3), (1.0, 1e-9), (4.0, 1e-6), (0.01, 1e-5)])
def test_noise_is_as_private_as_promised_and_no_more(
    mechanism: CountMechanism, sensitivity: int, epsilon: float, delta: float
) -> None:
    """The hockey-stick divergence, integrated, is at most δ and within a relative 1e-6 of it."""
    noise = calibrate_count(epsilon, delta, sensitivity, mechanism)
    reached = integrated_delta(mechanism, sensitivity / noise.scale, epsilon)
    assert reached == pytest.approx(delta, rel=1e-6)
    with decimal_digits(60):
        shift = Decimal(sensitivity) / Decimal(noise.scale)
        ideal = smallest_delta(mechanism, shift, Decimal(epsilon))
        assert ideal + Decimal(grid_delta(noise.scale, epsilon)) <= Decimal(delta)


@settings(max_examples=25, deadline=None)
@given(mechanisms, st.floats(0.01, 8.0), st.floats(0.01, 10.0))
def test_closed_forms_are_the_integrals(mechanism: CountMechanism, shift: float, epsilon: float) -> None:
    """δ(ε) of noise of scale 1 under any shift."""
    closed = float(smallest_delta(mechanism, Decimal(shift), Decimal(epsilon)))
    assert closed == pytest.approx(integrated_delta(mechanism, shift, epsilon), rel=1e-6, abs=1e-13)


@settings(max_examples=100, deadline=None)
@given(mechanisms, epsilons, deltas, sensitivities)
def test_promise_holds_with_the_grid_for_any_setting(
    mechanism: CountMechanism, epsilon: float, delta: float, sensitivity: int
) -> None:
    """The ideal δ and the grid's cost together stay within the decimals that are charged, ``delta`` being 1e-7 or more."""
    noise = calibrate_count(epsilon, delta, sensitivity, mechanism)
    assert noise.epsilon == min(epsilon, 16.0)
    assert noise.delta == delta
    with decimal_digits(60):
        shift = Decimal(sensitivity) / Decimal(noise.scale)
        ideal = smallest_delta(noise.mechanism, shift, Decimal(noise.epsilon))
        assert 0 <= ideal <= Decimal(delta) - Decimal(grid_delta(noise.scale, noise.epsilon))


@pytest.mark.parametrize("mechanism", CountMechanism)
def test_extremes(mechanism: CountMechanism) -> None:
    """The lowest and highest random integers give the point of tail 2^-65, the two middle ones 0."""
    noise = calibrate_count(0.01, 1e-3, 1, mechanism)
    largest = integer_noise(noise, RANDOM_INTEGERS - 1)
    assert largest == pytest.approx(EXTREMES[mechanism] * noise.scale, rel=1e-3)
    assert integer_noise(noise, 0) == -largest
    assert integer_noise(noise, RANDOM_INTEGERS // 2) == integer_noise(noise, RANDOM_INTEGERS // 2 - 1) == 0


@settings(max_examples=50, deadline=None)
@given(mechanisms, st.lists(random_integers, min_size=2, max_size=6), st.floats(0.001, 5.0))
def test_noise_grows_with_the_random_integer_and_is_antisymmetric(
    mechanism: CountMechanism, drawn: list[int], epsilon: float
) -> None:
    """A monotone inverse, and its mirror image."""
    noise = calibrate_count(epsilon, 1e-4, 1, mechanism)
    values = [integer_noise(noise, u) for u in sorted(drawn)]
    assert values == sorted(values)
    for u in drawn:
        assert integer_noise(noise, RANDOM_INTEGERS - 1 - u) == -integer_noise(noise, u)


@pytest.mark.parametrize("mechanism", CountMechanism)
def test_inversion_agrees_with_scipy(mechanism: CountMechanism) -> None:
    """Quantiles across the range, to the nearest integer or, where a float is close to a half, its neighbour."""
    noise = calibrate_count(1e-4, 1e-2, 1, mechanism)
    quantile: Callable[[float], float] = LAWS[mechanism](scale=noise.scale).ppf
    for i in range(1, 200):
        u = i * RANDOM_INTEGERS // 200
        assert integer_noise(noise, u) == pytest.approx(quantile((u + 0.5) / RANDOM_INTEGERS), abs=0.5 + 1e-6)


def test_delta_zero_is_laplace_and_pays_for_the_grid() -> None:
    """64 bits cannot give δ = 0: a hair is charged, and other laws are refused with what they need, which works."""
    noise = calibrate_count(1.0, 0.0, 1)
    assert noise.mechanism is LAPLACE
    assert noise.scale == pytest.approx(1.0, rel=1e-12)
    assert noise.scale >= 1.0
    assert noise.delta == grid_delta(noise.scale, 1.0)
    assert 0.0 < noise.delta < 2e-17
    with pytest.raises(InvalidInput, match="above about") as caught:
        calibrate_count(1.0, 0.0, 1, LOGISTIC)
    needed = float(caught.value.allowed.split()[2])
    assert calibrate_count(1.0, needed, 1, LOGISTIC).delta == needed


def test_grid_too_coarse_for_epsilon() -> None:
    """A tiny ε against 64 bits: refused unless δ leaves room, with a δ that does."""
    with pytest.raises(InvalidInput, match="is enough") as caught:
        calibrate_count(1e-9, 0.0, 1000)
    enough = float(caught.value.allowed.split("(")[1].split()[0])
    assert calibrate_count(1e-9, enough, 1000).delta == enough


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-18, 64.0])
@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-18, 0.1])
@pytest.mark.parametrize("sensitivity", [1, MAX_SENSITIVITY])
def test_edges_give_noise_or_a_refusal(epsilon: float, delta: float, sensitivity: int) -> None:
    """No crash, NaN or endless loop at the ends of the ranges; at δ = 0.1 always noise."""
    try:
        noise = calibrate_count(epsilon, delta, sensitivity)
    except InvalidInput:
        assert delta < 0.1
        return
    assert math.isfinite(noise.scale)
    assert noise.scale > 0.0
    assert delta <= noise.delta <= max(delta, 1e-7)


def test_large_epsilon_is_charged_as_sixteen() -> None:
    """Calibrated for 16, so that only 16 need be charged."""
    assert calibrate_count(64.0, 1e-6, 1) == calibrate_count(16.0, 1e-6, 1)
    assert calibrate_count(64.0, 1e-6, 1).epsilon == 16.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [
        (0.0, 0.0, 1),
        (math.nan, 0.0, 1),
        (1.0, -1.0, 1),
        (1.0, math.nan, 1),
        (1.0, 0.2, 1),
        (1.0, 0.0, 0),
        (1.0, 0.0, 1.5),
    ],
)
def test_wrong_values_are_refused(epsilon: float, delta: float, sensitivity: int) -> None:
    """NaN and everything out of range."""
    with pytest.raises(InvalidInput):
        calibrate_count(epsilon, delta, sensitivity)


@pytest.mark.parametrize("random_integer", [-1, RANDOM_INTEGERS, 0.5])
def test_random_integers_have_64_bits(random_integer: int) -> None:
    """Nothing else is taken for randomness."""
    with pytest.raises(InvalidInput, match="random_integer"):
        integer_noise(calibrate_count(1.0, 0.0, 1), random_integer)


@given(st.floats(-12.0, 12.0))
def test_normal_tail_agrees_with_scipy(x: float) -> None:
    """To a relative 1e-12, far tails included."""
    with decimal_digits(100):
        ours = float(normal_tail(Decimal(x)))
    assert ours == pytest.approx(float(norm.sf(x)), rel=1e-12)
