"""The comparison itself (A1): with integers of our choosing for the random ones, a bit flips iff its integer is below T.

What no count of flips can show, a probability wrong by 2^-12 or by 2^-64, shows here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.release import Mechanism, random_vector
from audit.verdict import Findings, Verdict
from veilset.core.encodings.bloom.response import PERTURB_CHUNK_BYTES

PLANES = 8
TAIL_BITS = 64 - PLANES
THRESHOLDS = (
    1,
    2,
    1 << 8,
    (1 << 56) - 1,
    1 << 56,
    (1 << 56) + 1,
    0x44D6_4F60_8C4B_2A00,
    0x44D6_4F60_8C4B_2A01,
    0x7FFF_FFFF_FFFF_FFFF,
    1 << 63,
)
CASES_PER_THRESHOLD = 1003


class ScriptedBytes:
    """The byte source that makes the sampler see the given integers: eight planes, then the tails of the ties.

    integers: shape (8·bytes,), dtype uint64, padding bits included. Asserts that exactly the expected bytes are asked for.
    """

    def __init__(self, integers: NDArray[np.uint64], threshold: int) -> None:
        shifts = np.arange(63, TAIL_BITS - 1, -1, dtype=np.uint64)[:, None]
        planes = np.packbits((integers >> shifts & np.uint64(1)).astype(np.uint8), axis=1)
        ties = integers[integers >> np.uint64(TAIL_BITS) == threshold >> TAIL_BITS]
        junk = np.random.default_rng().integers(0, 1 << PLANES, len(ties), dtype=np.uint64)
        tails = (ties << np.uint64(PLANES)) | junk  # the low eight bits of a tail word are not used
        self._pending: list[bytes] = [*(plane.tobytes() for plane in planes), tails.astype("<u8").tobytes()]

    def __call__(self, length: int) -> bytes:
        """The next bytes."""
        following = self._pending.pop(0)
        assert length == len(following)
        return following


def comparison(mechanism: Mechanism) -> Verdict:
    """Integers next to T, ties in the first eight bits, extremes and random ones, for thresholds of every kind."""
    findings = Findings("comparison with the threshold")
    for threshold in THRESHOLDS:
        integers = _integers(threshold)
        bits = len(integers) - 5  # the last byte has padding
        vector = random_vector(bits)
        noisy = mechanism(vector, bits, threshold, ScriptedBytes(integers, threshold))
        flips = np.unpackbits(vector ^ noisy, count=bits)
        wanted = np.array([int(u) < threshold for u in integers[:bits]])
        findings.exact(f"T = {threshold:#x}", int(np.count_nonzero(flips != wanted)), bits)
    return findings.verdict()


def _integers(threshold: int) -> NDArray[np.uint64]:
    """Shuffled; a multiple of 8 of them, in one chunk."""
    generator = np.random.default_rng()
    near = [threshold + step for step in range(-3, 4)]
    ties = [(threshold >> TAIL_BITS << TAIL_BITS) | int(tail) for tail in generator.integers(0, 1 << TAIL_BITS, 500)]
    chosen = [u for u in (0, (1 << 64) - 1, 1 << 63, *near, *ties) if 0 <= u < 1 << 64]
    rest = -(-CASES_PER_THRESHOLD // 8) * 8 - len(chosen)
    integers = np.concatenate(
        [np.array(chosen, dtype=np.uint64), generator.integers(0, (1 << 64) - 1, rest, dtype=np.uint64, endpoint=True)]
    )
    assert len(integers) <= 8 * PERTURB_CHUNK_BYTES
    generator.shuffle(integers)
    return integers
