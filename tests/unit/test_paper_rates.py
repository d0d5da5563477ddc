"""All 90 error rates that the DPBloomfilter paper measured, against the prediction."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from veilset.core.encodings.bloom.calibration import calibrate
from veilset.core.encodings.bloom.law import expected_fill, expected_ones_fraction, reading_law
from veilset.core.encodings.decoder import Rule, make_decoder
from veilset.core.params import Adjacency, PrivacyParameters

FIGURES = Path(__file__).parents[1] / "data" / "dpbloomfilter_error_rates.csv"
PERCENTAGE_POINTS = 0.5


def rows() -> list[dict[str, str]]:
    """The figures, header comments left out."""
    return list(csv.DictReader(line for line in FIGURES.read_text().splitlines() if not line.startswith("#")))


def test_all_figures_are_there() -> None:
    """90 rows: five numbers of hashes, 18 values of ε."""
    assert len(rows()) == 90


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"k={row['hashes']} eps={row['epsilon']}")
def test_prediction_meets_the_paper(row: dict[str, str]) -> None:
    """Both rates within half a percentage point; ε = 0 stands for a fair coin in place of every bit."""
    bits, size, hashes = int(row["bits"]), int(row["size"]), int(row["hashes"])
    flip_probability = 0.5
    if float(row["epsilon"]):
        privacy = PrivacyParameters(float(row["epsilon"]), float(row["delta"]), Adjacency.REPLACE_ONE, min_size=size)
        flip_probability = calibrate(bits, hashes, privacy).flip_probability
    ones_fraction = float(expected_ones_fraction(expected_fill(size, bits, hashes), flip_probability))
    decoder = make_decoder(reading_law(bits, hashes, flip_probability, ones_fraction), rule=Rule.ALL_ONES)
    false_negatives = 100.0 * (1.0 - decoder.true_positive_rate)
    false_positives = 100.0 * decoder.false_positive_rate
    assert false_negatives == pytest.approx(float(row["false_negative_percent"]), abs=PERCENTAGE_POINTS)
    assert false_positives == pytest.approx(float(row["false_positive_percent"]), abs=PERCENTAGE_POINTS)
