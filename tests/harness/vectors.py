"""Vectors without noise: what a set's should be, and what the state folder holds; and what Redis holds."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import redis

from harness.ledgers import ledger_copy
from harness.shapes import FilterParameters
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom import vectors


def expected_vector(parameters: FilterParameters, elements: Sequence[bytes]) -> bytes:
    """The packed Bloom filter of ``elements``."""
    vector = np.zeros(parameters.vector_bytes, dtype=np.uint8)
    vectors.insert(vector, parameters.bits, parameters.hashes, digests(elements, parameters.scheme, parameters.seed))
    return vector.tobytes()


def held_digests(state: Path, set_name: str) -> set[int]:
    """What the state folder says that a set holds, read by plain means: last operation wins, in order of finish."""
    while True:
        with ledger_copy(state) as ledger:
            query = "SELECT set_id FROM sets WHERE name = ? AND deleted = 0"
            (set_id,) = ledger.execute(query, (set_name,)).fetchone()
            query = "SELECT number, operation, NULL, digests FROM small_uploads WHERE set_id = ?1"
            query += " UNION ALL SELECT number, operation, file, NULL FROM runs WHERE set_id = ?1 ORDER BY 1"
            items = ledger.execute(query, (set_id,)).fetchall()
        held: set[int] = set()
        try:
            for _, operation, file, digests_here in items:
                added, removed = _run(state / file) if file else (unpacked(digests_here), set[int]())
                if operation == "remove":
                    added, removed = set(), added
                held = held - removed | added
        except FileNotFoundError:  # it was folded meanwhile
            continue
        return held


def unpacked(packed: bytes) -> set[int]:
    """The digests of 8 bytes each."""
    return set(struct.unpack(f"<{len(packed) // 8}Q", packed))


def _run(path: Path) -> tuple[set[int], set[int]]:
    """Added and removed digests of a run; all of an upload's are given as added."""
    content = path.read_bytes()
    added: set[int] = set()
    removed: set[int] = set()
    if path.suffix == ".spool":
        offset = 32 + 24
        while offset < len(content):
            _, count, _ = struct.unpack_from("<QQQ", content, offset)
            added |= unpacked(content[offset + 24 : offset + 24 + 8 * count])
            offset += 24 + 8 * count
        return added, removed
    (blocks,) = struct.unpack("<Q", content[-8:])
    offset = 0
    for block in range(blocks):
        _, kind, _ = struct.unpack_from("<QQQ", content, len(content) - 32 - 24 * (blocks - block))
        end = offset + 8 * (kind // 2)
        (removed if kind % 2 else added).update(unpacked(content[offset:end]))
        offset = end
    return added, removed


def raw_vector(state: Path, set_name: str) -> bytes:
    """The packed Bloom filter of what the state folder says that a set holds."""
    with ledger_copy(state) as ledger:
        query = "SELECT description FROM sets WHERE name = ? AND deleted = 0"
        (description,) = ledger.execute(query, (set_name,)).fetchone()
    shape = json.loads(description)["encoding"]
    parameters = FilterParameters(shape["bits"], shape["hashes"])
    vector = np.zeros(parameters.vector_bytes, dtype=np.uint8)
    vectors.insert(
        vector, parameters.bits, parameters.hashes, np.array(sorted(held_digests(state, set_name)), dtype=np.uint64)
    )
    return vector.tobytes()


def redis_content(url: str) -> dict[str, bytes]:
    """Every key of a Redis and its value; the service writes plain strings only."""
    with redis.Redis.from_url(url) as client:
        return {name.decode(): client.get(name) or b"" for name in sorted(client.scan_iter())}
