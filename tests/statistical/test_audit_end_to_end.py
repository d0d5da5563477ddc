"""The audit of the running service (A11): producer → gRPC → service → Redis → reader, and what the reader can tell.

Canaries are put into a sparse set by a coin each. Those that share a position with another canary are left out, whether
they are in the set or not; the noise on the others is independent, so their counts bound epsilon as independent trials do.
False-alarm rate: below 1e-7 for each of the two tests.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import veilset
from audit.lower_bounds import bound_verdict
from audit.release import DELTA
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.calibration import COIN_SIDES
from veilset.core.encodings.bloom.vectors import positions

CANARIES = 110_000
EPSILON = 1.0
FALSE_ALARM = 1e-7


def canary_positions(shape: FilterParameters, names: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Positions of each canary, shape (n, k), and whether it has k of its own."""
    found = positions(digests(names, shape.scheme, shape.seed), shape.bits, shape.hashes)
    _, where, uses = np.unique(found, return_inverse=True, return_counts=True)
    return found, (uses[where.reshape(found.shape)] == 1).all(axis=1)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("hashes", "bits", "releases", "floor"), [(1, (1 << 24) + 5, 1, 0.9), (10, (1 << 26) + 5, 15, 0.55)]
)
def test_reader_learns_no_more_than_epsilon(
    service: ServiceProcess,
    set_name: str,
    hashes: int,
    bits: int,
    releases: int,
    floor: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lower bound from what readers fetch stays below epsilon, and comes near enough to it to mean something."""
    names = [b"canary %d" % i for i in range(CANARIES)]
    present = np.random.default_rng().random(CANARIES) < 0.5
    counts = np.zeros((2, hashes + 1), dtype=np.int64)
    with service.connect() as connection:
        connection.create_set(
            set_name,
            size=CANARIES // 2,
            epsilon=EPSILON,
            delta=DELTA,
            adjacency="add-remove",
            bits=bits,
            hashes=hashes,
            budget_epsilon=releases * EPSILON,
            allow_poor_utility=True,
        )
        connection.add(set_name, [name for name, chosen in zip(names, present, strict=True) if chosen])
        for sequence in range(1, releases + 1):
            assert connection.publish(set_name).sequence == sequence
            view = veilset.open(service.redis, set_name, public_keys=[service.public_key])
            assert view.header.sequence == sequence
            found, alone = canary_positions(FilterParameters(bits, hashes, seed=view.header.hashing.seed), names)
            ones = vectors.test_bits(view.vector, found).sum(axis=1)
            for side in (0, 1):
                counts[side] += np.bincount(ones[alone & (present == side)], minlength=hashes + 1)
        connection.delete_set(set_name)
    assert view.header.encoding.fields()["changed_bits"] == hashes
    flip_probability = view.header.encoding.fields()["flip_threshold"] / COIN_SIDES
    seen = bound_verdict("canaries, end to end", counts[1], counts[0], floor, EPSILON, flip_probability)
    with capsys.disabled():
        print(f"\n{seen}")
    assert seen.false_alarm < FALSE_ALARM
    assert not seen.failures
