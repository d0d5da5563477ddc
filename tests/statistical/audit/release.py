"""One release of the mechanism under audit, drawn as the service draws it, and the contents to release.

The audit takes the mechanism as an argument, so that planted faults go through the same tests as the real one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.calibration import CalibratedResponse, calibrate
from veilset.core.encodings.bloom.response import RandomBytes
from veilset.core.params import Adjacency, PrivacyParameters
from veilset_server.state.entropy import OsEntropy

Bits = NDArray[np.uint8]
Mechanism = Callable[[Bits, int, int, RandomBytes], Bits]
"""(packed vector, bits, threshold, source of random bytes) → noisy packed vector, as `core.encodings.bloom.response.perturb`."""

LARGE_BITS = 1 << 22
DELTA = 1e-6


def release(mechanism: Mechanism, vector: Bits, bits: int, threshold: int) -> Bits:
    """A noisy copy of a packed vector, from a fresh stream of the operating system's entropy."""
    return mechanism(vector, bits, threshold, OsEntropy().keystream())


def calibrated(epsilon: float, changed_bits: int, bits: int = LARGE_BITS) -> CalibratedResponse:
    """The response that the service would use where one element changes ``changed_bits`` bits of ``bits``."""
    response = calibrate(bits, changed_bits, PrivacyParameters(epsilon, DELTA, Adjacency.ADD_REMOVE))
    assert response.changed_bits == changed_bits
    return response


def random_vector(bits: int, fill: float = 0.5) -> Bits:
    """A packed vector whose bits are ones with probability ``fill``; fresh at every call."""
    return np.packbits(np.random.default_rng().random(bits) < fill)


def ones(vector: Bits) -> int:
    """Number of ones of a packed vector."""
    return int(np.bitwise_count(vector).sum(dtype=np.int64))
