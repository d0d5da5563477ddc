"""A base release and its increments: when increments are allowed, and the answers of all releases together.

An element is in at most one release of a generation, and a reader says "member" if any release says so and no vector of removed
elements does. No other scheme of pure ε that cannot foresee arrivals has better rates (docs/privacy.md, 18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilset.core.encodings.decoder import Decoder, Law, make_decoder
from veilset.core.encodings.interface import Parameters
from veilset.core.estimates.intervals import BoundedTest, Spread
from veilset.core.estimates.results import Overlap
from veilset.core.params import PrivacyParameters
from veilset.errors import InvalidInput, PoorUtility

Floats = NDArray[np.float64]


def check_generation(encoding: Parameters, charged: PrivacyParameters) -> None:
    """Raise InvalidInput unless increments may follow a base release of that encoding and promise."""
    if charged.delta:
        raise InvalidInput(
            "increments",
            f"increments need a promise with delta 0, and {encoding} keep {charged.epsilon:g} with delta {charged.delta:g} only; "
            "choose the encoding linear, or the calibration worst-case",
        )
    if charged.adjacency not in encoding.GENERATIONS:
        raise InvalidInput(
            "increments",
            f"with the encoding {encoding.encoding} increments keep no promise under {charged.adjacency}, as a swap changes two "
            "of them; choose the encoding linear, or the relation add-remove",
        )


def mixture_scores(scores: Sequence[ArrayLike], capacities: Sequence[int]) -> Floats:
    """The log-likelihood ratio of a member of any release: ln Σ w_i·e^(s_i), w_i the share of release i in the capacities.

    scores: one array for each release, all of one shape, float64. A member is in release i with probability w_i and gives
    every other release a non-member's reading, so the ratio is the weighted sum of the releases' own.
    """
    weights = np.log(np.asarray(capacities, dtype=np.float64)) - np.log(float(sum(capacities)))
    stacked = np.stack([np.asarray(part, dtype=np.float64) for part in scores])
    return np.asarray(np.logaddexp.reduce(stacked + weights.reshape(-1, *[1] * (stacked.ndim - 1)), axis=0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GenerationDecoder(Decoder):
    """A decoder of a base release and its increments; made by `make_generation_decoder`.

    Readings are integers of shape (n, parts + tombstones): those of each release, then those of each vector of removed elements.
    law, accepts: of the base. parts, tombstones: a decoder for each vector. capacities: of each release. Saturated vectors are
    left out. true_positive_rate: of a random member, in each release with the probability of its share of the capacities.
    """

    parts: tuple[Decoder, ...] = ()
    tombstones: tuple[Decoder, ...] = ()
    capacities: tuple[int, ...] = ()

    @property
    def vectors(self) -> tuple[Decoder, ...]:
        """As `Decoder.vectors`: of the releases, then of removed elements."""
        return self.parts + self.tombstones

    @property
    def first(self) -> Decoder:
        """As `Decoder.first`: the base's."""
        return self.parts[0]

    @property
    def saturated(self) -> bool:
        """Whether all releases hold too many elements to show anything."""
        return all(part.saturated for part in self.parts)

    @property
    def saturated_parts(self) -> tuple[int, ...]:
        return tuple(number for number, part in enumerate(self.parts) if part.saturated)

    def decide(self, readings: ArrayLike) -> NDArray[np.bool_]:
        """Whether any release says yes and no vector of removed elements does; shape (n,)."""
        columns = np.asarray(readings).T
        yes = np.zeros(columns.shape[1:], dtype=np.bool_)
        for part, column in zip(self.parts, columns, strict=False):
            yes |= part.decide(column) & (not part.saturated)
        for part, column in zip(self.tombstones, columns[len(self.parts) :], strict=True):
            yes &= ~(part.decide(column) & (not part.saturated))
        return yes

    def scores(self, readings: ArrayLike) -> Floats:
        """`mixture_scores` of the releases, less what speaks for a removal (never less than nothing); shape (n,)."""
        columns = np.asarray(readings).T
        count = len(self.parts)
        scores = [part.scores(column) for part, column in zip(self.parts, columns[:count], strict=True)]
        removed = [part.scores(column) for part, column in zip(self.tombstones, columns[count:], strict=True)]
        found = mixture_scores(scores, self.capacities)
        return found - np.maximum(0.0, np.max(removed, axis=0)) if removed else found

    def extremes(self, readings: Any) -> Floats:
        """As `Decoder.extremes`, for one element's readings of shape (parts + tombstones,)."""
        possible = [
            part.extremes(reading) for part, reading in zip((*self.parts, *self.tombstones), readings, strict=True)
        ]
        count = len(self.parts)
        least, most = (mixture_scores([bounds[end] for bounds in possible[:count]], self.capacities) for end in (0, 1))
        removed = max((float(bounds[1]) for bounds in possible[count:]), default=0.0)
        return np.array([float(least) - max(0.0, removed), float(most)])


def make_generation_decoder(
    laws: Sequence[Law], tombstones: Sequence[Law], capacities: Sequence[int], **decision: Any
) -> Decoder:
    """The test of a whole generation, from the law of each of its vectors; a plain decoder for a base release alone.

    decision: as `make_decoder`. A largest false positive rate F holds for the generation: each of P releases has 1 - (1-F)^(1/P),
    and 1 - Π(1 - f_i) <= F, as the releases' noise is independent. A smallest true positive rate holds for the members of each
    release, after the chance that a vector of removed elements says yes by mistake. Raises as `make_decoder`.
    """
    if len(laws) == 1 and not tombstones:
        return make_decoder(laws[0], **decision)
    removals = tuple(make_decoder(law) for law in tombstones)
    stays = math.prod(1.0 - part.false_positive_rate for part in removals if not part.saturated)
    shared = dict(decision)
    if (most := decision.get("max_false_positive_rate")) is not None:
        shared["max_false_positive_rate"] = -math.expm1(math.log1p(-most) / len(laws)) if 0.0 < most < 1.0 else most
    if (least := decision.get("min_true_positive_rate")) is not None:
        if 0.0 < least < 1.0 and least >= stays:
            raise PoorUtility(
                f"min_true_positive_rate {least:g} cannot be reached with this release: its vectors of removed elements leave "
                f"{stays:.4g} of the members at most",
                min_true_positive_rate=least,
                largest_true_positive_rate=stays,
            )
        shared["min_true_positive_rate"] = least / stays
    parts = tuple(make_decoder(law, **shared) for law in laws)
    total = sum(capacities)
    silent = [1.0 if part.saturated else 1.0 - part.false_positive_rate for part in parts]
    detected = sum(
        capacity / total * (1.0 - (1.0 - _detected(part)) * math.prod(silent[:number] + silent[number + 1 :]))
        for number, (part, capacity) in enumerate(zip(parts, capacities, strict=True))
    )
    return GenerationDecoder(
        parts[0].law,
        parts[0].accepts,
        stays * detected,
        stays * (1.0 - math.prod(silent)),
        parts,
        removals,
        tuple(capacities),
    )


def _detected(part: Decoder) -> float:
    return 0.0 if part.saturated else part.true_positive_rate


def generation_overlap(
    decoder: GenerationDecoder, readings_yes: Sequence[int], listed: int, confidence: float
) -> Overlap:
    """How many of a list of ``listed`` distinct elements are in the set.

    readings_yes: how many each vector says yes to, in the order of a generation's readings. An element is in at most one release,
    so the overlaps with the releases add up, less those with the vectors of removed elements; so do their variances, as the noise
    is independent. Each yes has the mean c·t + (n-c)·f. Raises InvalidInput for a confidence out of range.
    """
    vectors = [(part, 1.0) for part in decoder.parts] + [(part, -1.0) for part in decoder.tombstones]
    unbiased = fixed = steepest = 0.0
    for (part, sign), yes in zip(vectors, readings_yes, strict=True):
        detected, mistaken = part.true_positive_rate, part.false_positive_rate
        if part.saturated or not detected > mistaken:
            continue
        width = (detected - mistaken) ** 2
        unbiased += sign * (yes - listed * mistaken) / (detected - mistaken)
        fixed += listed * mistaken * (1.0 - mistaken) / width
        steepest = max(steepest, (detected * (1.0 - detected) - mistaken * (1.0 - mistaken)) / width)

    def spread(common: float) -> Spread:
        return Spread(math.sqrt(fixed + common * steepest) + 1e-6)

    test = BoundedTest(unbiased, float, spread, 0.0, float(listed), confidence)
    return Overlap.of(test, listed, unbiased)
