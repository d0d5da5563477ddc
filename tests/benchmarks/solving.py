"""The linear encoding against plain filters of the same false positive rate: encode, ask, and bytes an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_least, at_most
from benchmarks.stopwatch import take_turns
from veilset.core import compiled
from veilset.core.encodings.interface import MemoryVector
from veilset.core.encodings.linear import rows as linear_rows
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, PrivacyParameters
from veilset_server.state.entropy import AesKeyStream

_ELEMENTS = 1_000_000
_BLOCK = 1 << 14
_EPSILON = 6.0
_ERROR = 2.0**-8
"""False positives of a linear release at this epsilon."""


def measure(run: Run) -> Measured:
    """Digests everywhere; the plain filters take them as Python integers, which is all that they can."""
    from fastbloom_rs import FilterBuilder
    from rbloom import Bloom

    compiled.load()
    count = run.size(_ELEMENTS)
    random = np.random.default_rng(1)
    digests = np.unique(random.integers(0, 1 << 64, count, dtype=np.uint64))
    asked = np.concatenate([digests[::2], random.integers(0, 1 << 64, count // 2, dtype=np.uint64)])
    numbers, asked_numbers, signed = digests.tolist(), asked.tolist(), digests.view(np.int64).tolist()
    parameters = LinearParameters.plan(
        PlanRequest(count, PrivacyParameters(_EPSILON, 0.0, Adjacency.ADD_REMOVE))
    ).parameters
    assert isinstance(parameters, LinearParameters)
    vector = MemoryVector(np.frombuffer(b"".join(parameters.encode([digests], AesKeyStream())), np.uint8))

    def encode() -> int:
        return sum(len(piece) for piece in parameters.encode([digests], AesKeyStream()))

    def fast() -> Any:
        built = FilterBuilder(count, _ERROR).build_bloom_filter()
        built.add_int_batch(signed)
        return built

    def bloom() -> Any:
        built = Bloom(count, _ERROR)
        built.update(numbers)
        return built

    def by_numpy() -> None:
        for start in range(0, count, _BLOCK):
            offsets, masks = linear_rows.pieces(parameters, asked[start : start + _BLOCK])
            linear_rows.orthogonal(parameters.planes, vector.fetch(offsets, linear_rows.piece_bytes(parameters)), masks)

    fast_built, bloomed, one = fast(), bloom(), asked_numbers[: max(1, len(asked_numbers) // 10)]
    timings = take_turns(
        {
            "encode": encode,
            "fast": fast,
            "bloom": bloom,
            "ask": lambda: parameters.read(vector, asked),
            "numpy": by_numpy,
            "one": lambda: [parameters.read_one(vector, digest) for digest in one],
            "ask one": lambda: [digest in bloomed for digest in one],
            "ask bloom": lambda: [digest in bloomed for digest in asked_numbers],
        },
        run.repeats,
    )
    sizes = {"fast": len(fast_built.get_bytes()), "bloom": bloomed.size_in_bits // 8}
    speed = {name: count / timings.median(name) / 1e6 for name in ("encode", "ask", "numpy")}
    found = {
        f"linear/encode-{peer}": timings.times_faster("encode", peer, note=f"{speed['encode']:.1f} M elements/s")
        for peer in ("fast", "bloom")
    }
    found["linear/ask"] = timings.times_faster("ask", "ask bloom", note=f"{speed['ask']:.1f} M digests/s")
    found["linear/numpy"] = timings.times_faster("numpy", "ask bloom", note=f"{speed['numpy']:.1f} M digests/s")
    each = 1e6 * timings.median("one") / len(one)
    found["linear/one"] = timings.times_slower("one", "ask one", note=f"{each:.1f} µs")
    for peer, size in sizes.items():
        ratio, ours = len(vector.array) / size, f"{8 * len(vector.array) / count:.2f} bits"
        found[f"linear/bytes-{peer}"] = Ratio(ratio, ratio, ratio, 1, ours, f"{8 * size / count:.2f} bits")
    return found


_FAST, _BLOOM = "fastbloom-rs at 1/256, no privacy", "rbloom at 1/256, no privacy"
FAMILY = Family(
    "linear",
    (
        Row("linear/encode-fast", "encode 10^6 sorted digests, ε = 6", _FAST, at_least(0.7)),
        Row("linear/encode-bloom", "encode 10^6 sorted digests, ε = 6", _BLOOM, at_least(0.7)),
        Row("linear/ask", "ask for 10^6 digests, compiled", f"{_BLOOM}, `in` in a loop", at_least(2)),
        Row("linear/numpy", "ask for 10^6 digests, numpy alone", f"{_BLOOM}, `in` in a loop", at_least(0.2)),
        Row("linear/one", "ask for one digest, without numpy", f"{_BLOOM}, `in`", at_most(60)),
        Row("linear/bytes-fast", "bytes an element, ε = 6", _FAST, at_most(1)),
        Row("linear/bytes-bloom", "bytes an element, ε = 6", _BLOOM, at_most(1)),
    ),
    measure,
    {"fastbloom-rs": "fastbloom_rs", "rbloom": "rbloom"},
)
