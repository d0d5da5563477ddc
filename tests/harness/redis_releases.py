"""Releases put into a Redis without a service: by the service's own writer, or forged by hand."""

from __future__ import annotations

import io
import time
from contextlib import closing

from veilset._reader.redis_client import connect_redis
from veilset._reader.redis_keys import chunk, latest, manifest
from veilset._reader.sources import FileSource, read_manifest
from veilset.core.release.signing import open_manifest
from veilset_server.redis.store import RedisStore


def now_us() -> int:
    """For a release of age 0."""
    return time.time_ns() // 1000


def publish(url: str, data: bytes) -> None:
    """What the service does with a release file: chunks, manifest, pointer, announcement."""
    with closing(FileSource(io.BytesIO(data))) as file, closing(RedisStore(url, 10.0)) as store:
        header = open_manifest(file.manifest(0))
        chunks = (file.chunk(0, index) for index in range(len(header.chunk_sha256)))
        store.upload(header.set_name, header.sequence, file.manifest(0), chunks)
        store.move_pointer(header.set_name, header.sequence)


def put(url: str, set_name: str, sequence: int, data: bytes) -> None:
    """What an attacker does who may write to Redis: any release at any place, and the pointer on it; nothing is announced."""
    put_beside(url, set_name, sequence, data)
    point_at(url, set_name, b"%d" % sequence)


def put_beside(url: str, set_name: str, sequence: int, data: bytes) -> None:
    """The same, and the pointer stays."""
    file = io.BytesIO(data)
    signed = read_manifest(file)
    with closing(connect_redis(url)) as client:
        client.set(chunk(set_name, sequence, 0), file.read())
        client.set(manifest(set_name, sequence), signed)


def point_at(url: str, set_name: str, pointer: bytes) -> None:
    """Set the pointer; nothing is announced."""
    with closing(connect_redis(url)) as client:
        client.set(latest(set_name), pointer)
