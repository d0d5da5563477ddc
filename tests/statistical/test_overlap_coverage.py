"""The interval of an own list's overlap holds the truth as often as it says, at zero, tiny and full overlap, too.

False-alarm rate: below 1e-6 per run, see `side_by_side.check_coverage`.
"""

from __future__ import annotations

import pytest

from harness.shapes import FilterParameters
from side_by_side import check_coverage, draw_positions, fresh_generator, noisy_vectors, ones_of_runs
from veilset.core.encodings.bloom.overlap import ListReading, overlap_test
from veilset.core.encodings.bloom.vectors import test_bits as read_bits


@pytest.mark.parametrize(
    ("bits", "hashes", "size", "own", "common", "flip"),
    [
        pytest.param(4096, 1, 500, 300, 0, 0.27, id="nothing in common"),
        pytest.param(4096, 1, 500, 300, 3, 0.27, id="next to nothing in common", marks=pytest.mark.audit),
        pytest.param(2048, 3, 250, 300, 0, 0.1, id="nothing in common, three hashes"),
        pytest.param(2048, 3, 450, 150, 100, 0.1, id="most in common, three hashes"),
        pytest.param(2048, 1, 2000, 2000, 1000, 0.27, id="many elements on every bit", marks=pytest.mark.audit),
        pytest.param(4096, 1, 500, 300, 300, 0.27, id="the whole list"),
    ],
)
def test_the_interval_holds_the_truth(bits: int, hashes: int, size: int, own: int, common: int, flip: float) -> None:
    rng, seed = fresh_generator()
    members = draw_positions(rng, bits, size * hashes)
    others = draw_positions(rng, bits, (own - common) * hashes)
    vectors = noisy_vectors(rng, bits, flip, [members])
    read = read_bits(vectors, members[:, : common * hashes]).sum(axis=1) + read_bits(vectors, others).sum(axis=1)
    shape = FilterParameters(bits, hashes)
    held = [
        overlap_test(shape.bits, shape.hashes, flip, ListReading(own, ones, total), 0.95).accepts(common)
        for ones, total in zip(read.tolist(), ones_of_runs(vectors).tolist(), strict=True)
    ]
    check_coverage(f"{common} of {own} in {size}, {hashes} hashes, flip {flip}", held, seed)
