"""Randomized response on packed bits, per bit, against OpenDP's measurement of the same flip probability."""

from __future__ import annotations

import os
from functools import partial

import numpy as np

from benchmarks.rows import Family, Measured, Row, Run, at_least
from benchmarks.stopwatch import take_turns
from veilset.core.encodings.bloom.calibration import flip_threshold
from veilset.core.encodings.bloom.response import perturb
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset_server.state.entropy import AesKeyStream

_EPSILONS = (0.1, 1.0, 3.0, 8.0)
_BITS = 10**9
_PEER_BITS = 10**6


def measure(run: Run) -> Measured:
    """Ours as a publish does it: chunk by chunk, from one keystream."""
    import opendp.prelude as dp
    from opendp.measurements import make_randomized_response_bitvec

    dp.enable_features("contrib")
    bits, peer_bits = 8 * run.size(_BITS // 8), 8 * run.size(_PEER_BITS // 8)
    vector = np.frombuffer(os.urandom(bits // 8), dtype=np.uint8)
    given = os.urandom(peer_bits // 8)

    def ours(threshold: int) -> None:
        stream = AesKeyStream()
        for start in range(0, len(vector), CHUNK_BYTES):
            piece = vector[start : start + CHUNK_BYTES]
            perturb(piece, 8 * len(piece), threshold, stream)

    found: Measured = {}
    for epsilon in _EPSILONS:
        threshold = flip_threshold(epsilon)
        theirs = make_randomized_response_bitvec(
            dp.bitvector_domain(max_weight=peer_bits), dp.discrete_distance(), f=2.0 * threshold / 2.0**64
        )
        timings = take_turns({"ours": partial(ours, threshold), "theirs": partial(theirs, given)}, run.repeats)
        note = f"{bits / timings.median('ours') / 1e9:.2f} Gbit/s; theirs {peer_bits / timings.median('theirs') / 1e6:.2f} Mbit/s"
        found[_key(epsilon)] = timings.times_faster("ours", "theirs", bits / peer_bits, note)
    return found


def _key(epsilon: float) -> str:
    return f"perturb/{epsilon:g}"


FAMILY = Family(
    "perturb",
    tuple(
        Row(_key(e), f"perturb 10^9 bits, ε0 = {e:g}, per bit", "OpenDP make_randomized_response_bitvec", at_least(500))
        for e in _EPSILONS
    ),
    measure,
    {"opendp": "opendp"},
)
