"""Raw vectors: what a set's should be, what the state folder holds, and what Redis holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import redis

from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.params import FilterParameters


def expected_vector(parameters: FilterParameters, elements: Sequence[bytes]) -> bytes:
    """The packed Bloom filter of ``elements``."""
    vector = np.zeros(parameters.vector_bytes, dtype=np.uint8)
    bloom.insert(vector, parameters, digests(elements, parameters.scheme, parameters.seed))
    return vector.tobytes()


def raw_vector(state: Path, set_name: str) -> bytes:
    """The raw vector as it lies in the state folder."""
    with closing(sqlite3.connect(f"file:{state / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        (set_id,) = ledger.execute("SELECT set_id FROM sets WHERE name = ? AND deleted = 0", (set_name,)).fetchone()
    return (state / "vectors" / f"{set_id}.bits").read_bytes()


def redis_content(url: str) -> dict[str, bytes]:
    """Every key of a Redis and its value; the service writes plain strings only."""
    with redis.Redis.from_url(url) as client:
        return {name.decode(): client.get(name) or b"" for name in sorted(client.scan_iter())}
