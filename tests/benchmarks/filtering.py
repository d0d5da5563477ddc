"""The server's part alone: packed digests to positions to bits, against a compiled filter that hashes strings."""

from __future__ import annotations

import numpy as np

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Row, Run, at_least
from benchmarks.stopwatch import take_turns
from harness.shapes import FilterParameters
from veilset.core import compiled
from veilset.core.elements.hashing import digests, pack_digests, unpack_digests
from veilset.core.encodings.bloom import vectors
from veilset.core.params import DIGEST_BYTES

_ELEMENTS = 2_000_000
_BATCH_BYTES = DIGEST_BYTES << 16
_TARGETS = {1: 1.0, 2: 0.8, 7: 0.5}
_FALSE_POSITIVES = {1: 0.75, 2: 0.4, 7: 0.01}
"""The rates at which the peer's builder settles on so many hashes."""


def measure(run: Run) -> Measured:
    """Both start from an empty filter of the same length in every turn."""
    from fastbloom_rs import FilterBuilder

    compiled.load()
    elements = addresses(run.size(_ELEMENTS))
    packed = pack_digests(digests([element.encode() for element in elements]))
    found: Measured = {}
    for hashes, rate in _FALSE_POSITIVES.items():
        built = FilterBuilder(len(elements), rate).build_bloom_filter()
        if built.hashes() != hashes:
            raise AssertionError(f"fastbloom-rs takes {built.hashes()} hashes for {rate}")
        shape = FilterParameters(8 * len(built.get_bytes()), hashes)

        def ours(shape: FilterParameters = shape) -> None:
            vector = np.zeros(shape.vector_bytes, dtype=np.uint8)
            for start in range(0, len(packed), _BATCH_BYTES):
                vectors.insert(vector, shape.bits, shape.hashes, unpack_digests(packed[start : start + _BATCH_BYTES]))

        def theirs(rate: float = rate) -> None:
            FilterBuilder(len(elements), rate).build_bloom_filter().add_str_batch(elements)

        timings = take_turns({"ours": ours, "theirs": theirs}, run.repeats)
        note = f"{len(elements) / timings.median('ours') / 1e6:.1f} M elements/s"
        found[f"server/k{hashes}"] = timings.times_faster("ours", "theirs", note=note)
    return found


FAMILY = Family(
    "server",
    tuple(
        Row(
            f"server/k{hashes}",
            f"packed digests into the bit vector, k = {hashes}",
            "fastbloom-rs add_str_batch",
            at_least(target),
        )
        for hashes, target in _TARGETS.items()
    ),
    measure,
    {"fastbloom-rs": "fastbloom_rs"},
)
