"""A noisy count: an integer statistic of a set plus integer noise, (ε, δ)-private. Releases carry the number of ones of
the raw vector (`usecases.counting`), which a user moves by at most u·k bits whatever the hash and the order of inserts.

Laws. Laplace, logistic and Gaussian noise are symmetric about 0 and log-concave, so the set where the likelihood ratio of a
shift by Δ exceeds e^ε is a half line and the smallest δ at ε has a closed form. Sources: Laplace and logistic from the symmetric
log-concave mechanism paper (one-dimensional results only); Gaussian: Balle and Wang, "Improving the Gaussian Mechanism for
Differential Privacy" (2018), theorem 5.

Rounding. The noise X is drawn from a continuous law and rounded to an integer Z. The count is an integer, so count + Z is
the rounding of count + X, which is post-processing: Z costs no more than X.

The 64-bit grid. Z is a function of one uniform integer u in [0, 2^64): with v = min(u, 2^64 - 1 - u) it is the integer
nearest to the point of upper tail (2v + 1)/2^65, negative for u in the lower half. So P(Z >= z) is the ideal tail
P(X > z - 1/2) rounded to a multiple of 2^-64: off by at most 2^-65, for every z. The inversion is in decimal, so no
floating error is added to that. At u = 0 and u = 2^64 - 1 the noise takes its extremes, about 44 scales (Laplace), 45
(logistic) or 9 (Gaussian) away; further out lies an ideal mass below 2^-64, which the grid does not have.

What it costs. On each side at most 46·s + 1 tails are off by 2^-65 each, and those further out by less than
2^-65·(s + 2) in all. An event's probability is a sum and difference of tails, each used once, so the grid's law is within
τ = 2^-64·(47·s + 3) of the ideal one in total variation. Then P'(A) <= P(A) + τ <= e^ε·Q(A) + δ + τ <=
e^ε·Q'(A) + δ + (1 + e^ε)·τ for neighbours P, Q: the grid adds (1 + e^ε)·τ to δ. `calibrate_count` leaves
room for it. The factor e^ε is why no count is calibrated for more than ε = 16, where the noise is 0 almost always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from statistics import NormalDist

from veilset.core.params import (
    MAX_DELTA,
    MAX_ELEMENTS_PER_USER,
    check_choice,
    check_delta,
    check_epsilon,
    check_integer,
)
from veilset.core.privacy.budget import float_within
from veilset.core.privacy.exact import decimal_digits
from veilset.errors import must_be

_DIGITS = 100  # 1 - erf loses up to 30 of them
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")

MAX_COUNT_EPSILON = 16.0
MAX_SENSITIVITY = MAX_ELEMENTS_PER_USER
RANDOM_INTEGERS = 1 << 64
"""A count takes one uniform integer below this."""

MAX_UNASKED_DELTA = 1e-10
"""A δ of 0 is asked for and the grid's cost charged, up to this; beyond it the caller has to ask for it."""

LEAST_EXACT_EPSILON = 1e-4
_BISECTIONS = 200


class CountMechanism(StrEnum):
    """The law of a count's noise."""

    LAPLACE = "laplace"
    LOGISTIC = "logistic"
    GAUSSIAN = "gaussian"


STANDARD_DEVIATION = {
    CountMechanism.LAPLACE: math.sqrt(2.0),
    CountMechanism.LOGISTIC: math.pi / math.sqrt(3.0),
    CountMechanism.GAUSSIAN: 1.0,
}
"""Standard deviation at scale 1."""


def two_sided_quantile(mechanism: CountMechanism, confidence: float) -> float:
    """The q with P(|noise of scale 1| > q) = α = 1 - confidence, in (0, 1).

    Laplace: ln(1/α). Logistic: ln(2/α - 1). Gaussian: -Φ^-1(α/2).
    """
    missed = 1.0 - confidence
    if mechanism is CountMechanism.LAPLACE:
        return -math.log(missed)
    if mechanism is CountMechanism.LOGISTIC:
        return math.log(2.0 / missed - 1.0)
    return -NormalDist().inv_cdf(missed / 2.0)


def smallest_delta(mechanism: CountMechanism, shift: Decimal, epsilon: Decimal) -> Decimal:
    """The smallest δ at which noise of scale 1 hides a shift by ``shift`` = Δ/s > 0 at ε >= 0 (hockey-stick divergence).

    Laplace: 1 - e^((ε - Δ/s)/2). Logistic: y/(1+y) - e^ε·z/(1+z) with z = y·e^(-Δ/s), y = (1-g)/(g - e^(-Δ/s)) and
    g = e^((ε - Δ/s)/2). Both 0 where Δ/s <= ε. Gaussian: Φ(Δ/2s - εs/Δ) - e^ε·Φ(-Δ/2s - εs/Δ). To 60 digits.
    """
    with decimal_digits(_DIGITS):
        if mechanism is CountMechanism.GAUSSIAN:
            centre, offset = shift / 2, epsilon / shift
            return normal_tail(offset - centre) - epsilon.exp() * normal_tail(offset + centre)
        if shift <= epsilon:
            return Decimal(0)
        root = ((epsilon - shift) / 2).exp()
        if mechanism is CountMechanism.LAPLACE:
            return 1 - root
        decay = (-shift).exp()
        odds = (1 - root) / (root - decay)
        return odds / (1 + odds) - epsilon.exp() * odds * decay / (1 + odds * decay)


def nearest_integer(mechanism: CountMechanism, scale: Decimal, tail: Decimal) -> int:
    """The integer nearest to the x >= 0 with P(noise > x) = ``tail``, in (0, 1/2]; halves go up. Exact.

    Laplace: x = -s·ln(2·tail). Logistic: x = s·ln(1/tail - 1). Gaussian: a float guess, corrected by comparing decimal
    tails, since x >= z - 1/2 if and only if P(noise > z - 1/2) >= tail. "Exact" is up to x being within 10^-50 of a half.
    """
    with decimal_digits(_DIGITS):
        half = Decimal("0.5")
        if mechanism is CountMechanism.LAPLACE:
            return math.floor(half - scale * (2 * tail).ln())
        if mechanism is CountMechanism.LOGISTIC:
            return math.floor(half + scale * (1 / tail - 1).ln())
        guess = max(0, round(-float(scale) * NormalDist().inv_cdf(float(tail))))
        while normal_tail((guess + half) / scale) >= tail:
            guess += 1
        while guess > 0 and normal_tail((guess - half) / scale) < tail:
            guess -= 1
        return guess


def normal_tail(x: Decimal) -> Decimal:
    """P(standard normal > x), to 60 digits for |x| <= 12; the caller's context has at least 100 digits.

    The series erf(z) = 2/sqrt(π)·e^(-z²)·Σ_n 2^n z^(2n+1)/(1·3·…·(2n+1)) at z = x/sqrt(2) has positive terms only.
    """
    square = x * x
    term = total = abs(x)
    order = 1
    while term > total * Decimal(10) ** -_DIGITS:
        order += 2
        term = term * square / order
        total += term
    centre = total * (-square / 2).exp() / (2 * _PI).sqrt()  # P(0 < standard normal < |x|)
    return Decimal("0.5") - centre if x >= 0 else Decimal("0.5") + centre


@dataclass(frozen=True, slots=True)
class CountNoise:
    """Calibrated noise of one count.

    scale: s, in elements. sensitivity: Δ, the most that one user changes the count. epsilon, delta: what a count with this
    noise costs, the 64-bit grid included.
    """

    mechanism: CountMechanism
    scale: float
    sensitivity: int
    epsilon: float
    delta: float


def calibrate_count(
    epsilon: float, delta: float, sensitivity: int, mechanism: CountMechanism | None = None
) -> CountNoise:
    """The noise of the smallest variance (or of the given mechanism) that makes a count (ε, δ)-private.

    epsilon: in (0, 64]; above 16 the noise is that of 16, and only 16 is charged. delta: in [0, 0.1]. sensitivity: Δ, an
    integer in [1, 32000]. With a delta below twice what the grid costs (about 1e-17 at ε = 1, Δ = 1) the noise is pure
    Laplace, and what is charged is the larger of delta and the grid's cost: 64 bits cannot give δ = 0.
    Raises InvalidInput for values out of range, for another mechanism than Laplace at so small a delta, and where the
    grid would cost more than delta and 1e-10 (epsilon very small against sensitivity).
    """
    epsilon = min(check_epsilon("epsilon", epsilon), MAX_COUNT_EPSILON)
    check_delta("delta", delta)
    check_integer("sensitivity", sensitivity, 1, MAX_SENSITIVITY)
    if mechanism is not None:
        mechanism = check_choice("mechanism", mechanism, CountMechanism)
    wished = [mechanism] if mechanism is not None else list(CountMechanism)
    # Charged are the decimals that the floats stand for; the noise has to be for no more than that.
    within = float_within(epsilon), float_within(delta)
    scales = {law: scale for law in wished if (scale := _scale(law, sensitivity, *within)) is not None}
    if scales:
        best = min(scales, key=lambda law: scales[law] * STANDARD_DEVIATION[law])
        return CountNoise(best, scales[best], sensitivity, epsilon, delta)
    scale = smallest_scale(CountMechanism.LAPLACE, sensitivity, within[0], 0.0)
    cost = grid_delta(scale, epsilon)
    if not cost <= max(delta, MAX_UNASKED_DELTA):
        enough = min(2.0 * cost, MAX_DELTA)
        raise must_be(
            "delta", f"larger at this epsilon, for a count drawn from 64 bits ({enough:.1e} is enough)", delta
        )
    if CountMechanism.LAPLACE not in wished:
        raise must_be("delta", f"above about {4.0 * cost:.1e} for {mechanism} noise", delta)
    return CountNoise(CountMechanism.LAPLACE, scale, sensitivity, epsilon, max(delta, cost))


def integer_noise(noise: CountNoise, random_integer: int) -> int:
    """The noise to add to the count, from one uniform integer of 64 bits; the sum may be negative and is unbiased.

    Monotone in random_integer, and antisymmetric: 2^64 - 1 - u gives the negative. The module's header says what its
    law is. Raises InvalidInput outside [0, 2^64).
    """
    check_integer("random_integer", random_integer, 0, RANDOM_INTEGERS - 1)
    mirrored = min(random_integer, RANDOM_INTEGERS - 1 - random_integer)
    with decimal_digits(60):
        tail = Decimal(2 * mirrored + 1) / (2 * RANDOM_INTEGERS)
    size = nearest_integer(noise.mechanism, Decimal(noise.scale), tail)
    return -size if random_integer < RANDOM_INTEGERS // 2 else size


def exact_count(epsilon: float, sensitivity: int) -> CountNoise:
    """The noise of a count that is ε-private with δ = 0: `exact_noise`, the two-sided geometric law, Laplace's on integers.

    epsilon: in (0, 64], at least 10^-4 for each of ``sensitivity``, as noise takes about Δ/ε random integers to draw. Raises
    InvalidInput.
    """
    check_integer("sensitivity", sensitivity, 1, MAX_SENSITIVITY)
    least = LEAST_EXACT_EPSILON * sensitivity
    if check_epsilon("count_epsilon", epsilon) < least:
        raise must_be("count_epsilon", f"at least {least:g}", epsilon)
    return CountNoise(CountMechanism.LAPLACE, sensitivity / epsilon, sensitivity, epsilon, 0.0)


def exact_noise(noise: CountNoise, random_bytes: Callable[[int], bytes | bytearray | memoryview]) -> int:
    """Noise of `exact_count`: the difference of two geometric numbers, each of how many 64-bit integers in a row are below T.

    T is the smallest integer with T/2^64 >= e^(-ε/Δ), so that neighbouring counts differ in probability by at most e^(ε/Δ): pure
    ε. The noise's law is the same whatever is counted, and so is the time that it takes.
    """
    with decimal_digits(60):
        decay = (-Decimal(repr(noise.epsilon)) / noise.sensitivity).exp().next_plus()
        threshold = min(math.ceil(decay * RANDOM_INTEGERS), RANDOM_INTEGERS - 1)

    def run() -> int:
        length = 0
        while int.from_bytes(random_bytes(8), "little") < threshold:
            length += 1
        return length

    return run() - run()


def grid_delta(scale: float, epsilon: float) -> float:
    """What drawing from 64 bits adds to δ: (1 + e^ε)·(47·s + 3)·2^-64, as the module's header derives it."""
    return (1.0 + math.exp(epsilon)) * (47.0 * scale + 3.0) * 2.0**-64


def smallest_scale(mechanism: CountMechanism, sensitivity: int, epsilon: float, delta: float) -> float:
    """The smallest s (to a relative 1e-12, never below) at which the continuous law is (ε, δ)-private; inf if none.

    Laplace: Δ/(ε - 2·ln(1-δ)). Logistic: Δ/(2·ln v), v = (e^(ε/2) + sqrt(δ(e^ε + δ - 1)))/(1-δ). Gaussian: by bisection.
    The float is then raised until the decimal `smallest_delta` agrees.
    """
    if mechanism is CountMechanism.GAUSSIAN:
        if delta == 0.0:
            return math.inf
        scale = sensitivity / _gaussian_shift(epsilon, delta)
    elif mechanism is CountMechanism.LAPLACE:
        scale = sensitivity / (epsilon - 2.0 * math.log1p(-delta))
    else:
        excess = math.expm1(epsilon / 2.0) + math.sqrt(delta * (math.expm1(epsilon) + delta))
        scale = sensitivity / (2.0 * (math.log1p(excess) - math.log1p(-delta)))  # ln v without cancellation
    growth = 2.0**-52
    while not _is_private(mechanism, scale, sensitivity, epsilon, delta):
        scale *= 1.0 + growth
        growth *= 2.0
    return scale


def _scale(mechanism: CountMechanism, sensitivity: int, epsilon: float, delta: float) -> float | None:
    """The scale for δ less the grid's cost; None if that cost is more than half of δ."""
    if delta <= 2.0 * grid_delta(0.0, epsilon):
        return None
    cost = grid_delta(smallest_scale(mechanism, sensitivity, epsilon, delta / 2.0), epsilon)
    if not cost <= delta / 2.0:
        return None
    rest = math.nextafter(delta - cost, 0.0)  # the difference may have been rounded up
    return smallest_scale(mechanism, sensitivity, epsilon, rest)  # no larger than the scale that was costed


def _is_private(mechanism: CountMechanism, scale: float, sensitivity: int, epsilon: float, delta: float) -> bool:
    with decimal_digits(60):
        shift = Decimal(sensitivity) / Decimal(scale)
    return smallest_delta(mechanism, shift, Decimal(epsilon)) <= Decimal(delta)


def _gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest Δ/s, by bisection in floats: δ grows with it from 0 to 1."""
    low, high = 0.0, 1.0
    while _gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        low, high = (middle, high) if _gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


def _gaussian_delta(shift: float, epsilon: float) -> float:
    centre, offset = shift / 2.0, epsilon / shift
    root = math.sqrt(2.0)
    inside = math.erfc((offset - centre) / root) / 2.0
    return inside - math.exp(epsilon) * math.erfc((offset + centre) / root) / 2.0
