"""The three one-dimensional noise laws of a count, in decimal: how private they are, and their tails.

All are symmetric about 0 and log-concave, so the set where the likelihood ratio of a shift by Δ exceeds e^ε is a half
line and the smallest δ at ε has a closed form. Sources: Laplace and logistic from the symmetric log-concave mechanism
paper (one-dimensional results only); Gaussian: Balle and Wang, "Improving the Gaussian Mechanism for
Differential Privacy" (2018), theorem 5.
"""

from __future__ import annotations

import math
from decimal import Decimal
from enum import StrEnum
from statistics import NormalDist

from veilset.core.privacy.exact import decimal_digits

_DIGITS = 100  # 1 - erf loses up to 30 of them
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


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
