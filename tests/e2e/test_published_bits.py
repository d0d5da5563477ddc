"""What Redis holds of a release is what readers see, bit by bit, and nothing of the raw vector."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import redis

import veilset
from harness.leaks import shared_windows
from harness.service_process import ServiceProcess
from harness.vectors import raw_vector
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.interface import CHUNK_BYTES

SAMPLES = 1500
CHUNK_BITS = 8 * CHUNK_BYTES


def read_bits(client: redis.Redis, set_name: str, sequence: int, positions: list[int]) -> list[int]:
    """Single bits by plain GETBIT, as any client in any language would read them."""
    with client.pipeline(transaction=False) as pipe:
        for position in positions:
            index, offset = divmod(position, CHUNK_BITS)
            pipe.getbit(f"veilset:{set_name}:{sequence}:bits:{index}", offset)
        found: list[int] = pipe.execute()
    return found


@pytest.mark.parametrize("bits", [8 * 97 + 5, CHUNK_BITS - 8, CHUNK_BITS + 3], ids=["one byte odd", "one chunk", "two"])
def test_every_release_reads_the_same_by_getbit(service: ServiceProcess, set_name: str, bits: int) -> None:
    """At the ends of the vector and of each chunk, at random positions, and as a whole; and so it stays."""
    with service.connect() as connection:
        connection.create_set(
            set_name, size=100, epsilon=1, adjacency="add-remove", bits=bits, hashes=1, budget_epsilon=2
        )
        connection.add(set_name, [f"element {number}" for number in range(100)])
        releases = [connection.publish(set_name) for _ in range(2)]
    ends = [p for p in (0, 1, 7, 8, CHUNK_BITS - 1, CHUNK_BITS, bits - 2, bits - 1) if p < bits]
    positions = ends + [secrets.randbelow(bits) for _ in range(SAMPLES)]
    with redis.Redis.from_url(service.redis) as client:
        for release in releases:
            view = veilset.open(service.redis, set_name, sequence=release.sequence)
            seen = vectors.test_bits(view.vector, np.array(positions, dtype=np.uint64))
            assert read_bits(client, set_name, release.sequence, positions) == seen.astype(int).tolist()
            chunks = [f"veilset:{set_name}:{release.sequence}:bits:{i}" for i in range(-(-bits // CHUNK_BITS))]
            assert b"".join(client.get(chunk) or b"" for chunk in chunks) == view.vector.tobytes()
            padding = range(bits, 8 * view.header.vector_bytes)
            assert not any(read_bits(client, set_name, release.sequence, list(padding)))


def test_the_raw_vector_is_not_in_any_release(service: ServiceProcess, set_name: str) -> None:
    """A full one would show in any stretch of 64 bytes; of 24,000 no stretch is in Redis, under no key."""
    with service.connect() as connection:
        connection.create_set(
            set_name, size=100_000, epsilon=1, adjacency="add-remove", bits=192_000, hashes=1, budget_epsilon=2
        )
        connection.add(set_name, map(str, range(100_000)))
        for _ in range(2):
            connection.publish(set_name)
    raw = raw_vector(service.state, set_name)
    with redis.Redis.from_url(service.redis) as client:
        values = [client.get(name) or b"" for name in client.scan_iter(match=f"veilset:{set_name}:*")]
    assert len(values) == 5
    assert sum(map(len, values)) > 2 * len(raw)
    assert shared_windows(raw, [raw[1000:1100]]) == list(range(1000, 1037))
    assert shared_windows(raw, values) == []
