"""What digests find in a noisy vector: ones at their positions, by the compiled kernel where it is worth it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.elements.hashing import positions
from veilset.core.encodings.bitset import test_bits
from veilset.core.encodings.bloom.decoding import count_ones_per_element
from veilset.core.params import FilterParameters

_CHUNK = 1 << 16
_SAVED_PER_POSITION = 20e-9


def readings_per_element(
    vector: NDArray[np.uint8], shape: FilterParameters, hashed: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ones among the distinct positions of each digest (n,), and how many distinct positions it has; int64, (n,) each."""
    kernels = compiled.kernels(_SAVED_PER_POSITION * len(hashed) * shape.hashes)
    if kernels is None:
        found = positions(hashed, shape.bits, shape.hashes)
        return count_ones_per_element(found, test_bits(vector, found))
    _check(vector, shape)
    ones, distinct = np.empty(len(hashed), dtype=np.int64), np.empty(len(hashed), dtype=np.int64)
    kernels.filter.count_per_element(read_only(vector), read_only(hashed), shape.bits, shape.hashes, ones, distinct)
    return ones, distinct


def count_readings(vector: NDArray[np.uint8], shape: FilterParameters, hashed: NDArray[np.uint64]) -> int:
    """Ones at all positions of all digests, each position as often as it occurs."""
    kernels = compiled.kernels(_SAVED_PER_POSITION * len(hashed) * shape.hashes)
    if kernels is not None:
        _check(vector, shape)
        return int(kernels.filter.count_readings(read_only(vector), read_only(hashed), shape.bits, shape.hashes))
    ones = 0
    for start in range(0, len(hashed), _CHUNK):
        found = positions(hashed[start : start + _CHUNK], shape.bits, shape.hashes)
        ones += int(np.count_nonzero(test_bits(vector, found)))
    return ones


def _check(vector: NDArray[np.uint8], shape: FilterParameters) -> None:
    """Kernels look at no bounds."""
    if len(vector) != shape.vector_bytes:
        raise ValueError(f"vector: {len(vector)} bytes long, has to be {shape.vector_bytes}")
