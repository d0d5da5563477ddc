"""What one setting is worth: the exact calibration of (m, k), and the rates that the planned size lets one expect."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.accuracy import (
    advantage_limit,
    attacker_accuracy_limit,
    binomial_tails,
    expected_fill,
    expected_ones_fraction,
)
from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.decoding import Rule, make_decoder
from veilset.core.encodings.bloom.planning.estimates import plannable_hashes
from veilset.core.params import MAX_SIZE, FilterParameters, PrivacyParameters, check_integer
from veilset.errors import InvalidInput

SMALLEST_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    """A setting and what it is worth; the field names are those of ``veilset plan --json``.

    bits, hashes: m and k. epsilon0, flip_probability, changed_bits: as in `CalibratedResponse`. threshold: ones that an
    ordinary element needs. true_positive_rate, false_positive_rate, advantage: expected at the planned size.
    advantage_limit, attacker_accuracy_limit: what no test can pass under (ε, δ). efficiency: advantage over its limit.
    bytes: length of the packed vector.
    """

    bits: int
    hashes: int
    epsilon0: float
    flip_probability: float
    changed_bits: int
    threshold: int
    true_positive_rate: float
    false_positive_rate: float
    advantage: float
    advantage_limit: float
    efficiency: float
    attacker_accuracy_limit: float
    bytes: int


def check_planned_size(size: int, privacy: PrivacyParameters) -> int:
    """Return ``size`` if it is in [1, 10^12] and not below the promised min_size, else raise InvalidInput."""
    check_integer("size", size, 1, MAX_SIZE)
    if privacy.epsilon < SMALLEST_EPSILON:
        raise InvalidInput("epsilon", f"at least {SMALLEST_EPSILON:g}, the least that can be charged", privacy.epsilon)
    if privacy.min_size > size:
        raise InvalidInput("min_size", f"at most the planned size, {size}", privacy.min_size)
    return size


def evaluate(
    size: int,
    privacy: PrivacyParameters,
    bits: int,
    hashes: int,
    *,
    rule: Rule = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
) -> Plan:
    """Price an explicit setting; answers however poor it is.

    size: n distinct elements, in [1, 10^12], not below privacy.min_size. bits in [8, 2^40], hashes in [1, 32]. rule and the
    two limits choose the threshold, as in `make_decoder`. Raises InvalidInput for values out of range, and PoorUtility
    only where a limit was given that this setting cannot reach.
    """
    check_planned_size(size, privacy)
    shape = FilterParameters(bits, hashes)
    response = calibrate(shape, privacy)
    fill = float(expected_fill(size, bits, hashes))
    decoder = make_decoder(
        bits,
        hashes,
        response.flip_probability,
        float(expected_ones_fraction(fill, response.flip_probability)),
        rule=rule,
        max_false_positive_rate=max_false_positive_rate,
        min_true_positive_rate=min_true_positive_rate,
    )
    limit = advantage_limit(privacy.epsilon, privacy.delta)
    return Plan(
        bits=bits,
        hashes=hashes,
        epsilon0=response.epsilon0,
        flip_probability=response.flip_probability,
        changed_bits=response.changed_bits,
        threshold=decoder.threshold,
        true_positive_rate=decoder.true_positive_rate,
        false_positive_rate=decoder.false_positive_rate,
        advantage=decoder.advantage,
        advantage_limit=limit,
        efficiency=decoder.advantage / limit,
        attacker_accuracy_limit=attacker_accuracy_limit(privacy.epsilon, privacy.delta),
        bytes=shape.vector_bytes,
    )


def rates_by_threshold(size: int, setting: Plan) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """FPR and TPR of every test "at least t ones", t = k + 1 .. 0 (from never to always): the points of the ROC curve.

    Of elements with k distinct positions; two float64 arrays (k + 2,), both rising from 0 to 1. The lines between the
    points are reached by tossing a coin between two thresholds.
    """
    fill = expected_fill(check_integer("size", size, 1, MAX_SIZE), setting.bits, setting.hashes)
    fraction = expected_ones_fraction(fill, setting.flip_probability)
    mistaken = binomial_tails(setting.hashes, fraction)[::-1]
    return mistaken, binomial_tails(setting.hashes, 1.0 - setting.flip_probability)[::-1]


def textbook_setting(size: int, privacy: PrivacyParameters, bits: int) -> Plan:
    """The setting of a Bloom filter without noise, k = round((m/n)·ln 2) with the all-ones rule, priced under this noise.

    Shown beside a plan to say why it fails: every further hash costs a share of ε. k is kept within 1 .. 32 and
    within what the calibration can do for elements_per_user.
    """
    hashes = round(bits / check_planned_size(size, privacy) * math.log(2.0))
    most = max(plannable_hashes(privacy), default=1)
    return evaluate(size, privacy, bits, min(max(hashes, 1), most), rule=Rule.ALL_ONES)
