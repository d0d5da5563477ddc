"""ReleaseStore port on Redis or Valkey. Every write may be repeated; the pointer moves last and only forward."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import redis
from redis.client import Pipeline
from redis.cluster import RedisCluster

from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import RedisClient, connect_redis, refused_command, transient
from veilset._reader.redis_url import parse_redis_url
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.signing import MAX_MANIFEST_BYTES
from veilset.errors import NotFound, Unavailable, must_be

MAX_DIGITS = 19
POINTER_TRIES = 100
LENGTHS_EACH = 1000
SLOTS = 16384


class RedisStore:
    """Releases in Redis, in the key layout of `_reader.redis_keys`.

    replicas: how many replicas must hold a release before the pointer moves (WAIT); 0 asks none.
    """

    def __init__(self, url: str, timeout_seconds: float, replicas: int = 0) -> None:
        """Connects at the first use. Raises InvalidInput for what is no Redis URL, and for replicas in a cluster, where WAIT
        asks one node only."""
        self._url = parse_redis_url(url)
        if replicas and self._url.kind == "cluster":
            raise must_be("replicas", "0 with a cluster; set min-replicas-to-write on its nodes", replicas)
        self._timeout_seconds = timeout_seconds
        self._replicas = replicas
        self._connected: RedisClient | None = None

    @property
    def _client(self) -> RedisClient:
        if self._connected is None:  # a cluster client talks at once, and the service may start before Redis
            self._connected = connect_redis(self._url, self._timeout_seconds)
        return self._connected

    def close(self) -> None:
        """Close all connections to Redis."""
        if self._connected is not None:
            self._connected.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        with transient(self._url.place):
            try:
                yield
            except redis.RedisClusterException:  # all of its nodes may have moved: the URL's hosts are asked anew
                self._connected = None
                raise

    def probe(self, set_name: str) -> None:
        """Ask for everything that a delivery of the set will do; nothing is changed.

        Redis checks rights, memory and role before it runs a command, or queues it. So a SET that could do nothing (XX and NX)
        shows whether the pointer may be set, and what is queued is then discarded. Raises StoreMisconfigured, Unavailable.
        """
        pointer = keys.latest(set_name)
        with self._telling():
            client = self._client
            client.getrange(pointer, 0, 0)  # a cluster's client learns here where it is now
            for key in self._probe_keys(client, set_name):
                client.set(key, b"", xx=True)
            node = client
            if isinstance(client, RedisCluster):
                owner = client.get_node_from_key(pointer)  # type: ignore[no-untyped-call]
                node = client.get_redis_connection(owner)
            with node.pipeline(transaction=False) as pipe:
                for command in self._steps(set_name, pointer):
                    pipe.pipeline_execute_command(*command)
                answers = pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception) and "syntax error" not in str(answer):
                    raise answer

    def _steps(self, set_name: str, pointer: str) -> Iterator[tuple[str | int, ...]]:
        yield "WATCH", pointer
        yield "GETRANGE", pointer, 0, 0
        yield ("MULTI",)
        yield "SET", pointer, 0, "NX", "XX"
        yield "PUBLISH", keys.channel(set_name), 0
        if self._replicas:
            yield "WAIT", self._replicas, 1
        yield ("DISCARD",)
        yield ("MULTI",)
        yield ("EXEC",)
        yield ("UNWATCH",)  # where the pointer is there already

    def _probe_keys(self, client: RedisClient, set_name: str) -> Iterator[str]:
        """Of a release 0, which there never is: one key, or in a cluster one on each primary."""
        names = (keys.chunk(set_name, 0, index) for index in itertools.count(keys.MANIFEST))
        if not isinstance(client, RedisCluster):
            yield next(names)
            return
        left = {node.name for node in client.get_primaries()}  # type: ignore[no-untyped-call]
        for name in itertools.islice(names, SLOTS):
            node = client.get_node_from_key(name).name  # type: ignore[no-untyped-call]
            if node in left:
                left.remove(node)
                yield name
            if not left:
                return

    def ping(self) -> None:
        """Raises Unavailable if Redis does not answer or refuses writes."""
        with self._telling():
            self._client.set(keys.PROBE, b"", xx=True)  # a write that writes nothing, as no such key exists

    def evicts(self) -> str:
        """Redis's maxmemory-policy, unless it is noeviction or Redis does not let us ask."""
        with self._telling():
            try:
                return _policy(self._client.info("memory"))
            except redis.ResponseError:
                return ""

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        """Write chunks, then the manifest."""
        with self._telling():
            for index, chunk in enumerate(chunks):
                self._client.set(keys.chunk(set_name, sequence, index), chunk)
            self._last("SET", keys.manifest(set_name, sequence), manifest)

    def _last(self, *command: str | bytes) -> None:
        """A write after which the replicas have to hold all that was written so far.

        WAIT asks for the writes of its own connection only, and the pool hands out any: so both go out together.
        """
        if not self._replicas:
            self._client.execute_command(*command)  # type: ignore[no-untyped-call]
            return
        milliseconds = int(self._timeout_seconds * 500)  # the answer has to come before the socket's own time is up
        with self._client.pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)
            pipe.execute_command("WAIT", self._replicas, milliseconds)
            _, reached = pipe.execute()
        if int(reached) < self._replicas:
            raise Unavailable(f"Redis: {reached} of {self._replicas} replicas answered", kind="WAIT")

    def move_pointer(self, set_name: str, sequence: int) -> None:
        """Compare and set; then the notification, and with replicas, which an earlier try may not have reached, again."""
        with self._telling():
            if self._compare_and_set(keys.latest(set_name), sequence) or self._replicas:
                self._last("PUBLISH", keys.channel(set_name), str(sequence))

    def _compare_and_set(self, key: str, sequence: int) -> bool:
        """Whether it had to be set. Under WATCH: a concurrent move makes us look again."""
        for _ in range(POINTER_TRIES):
            with self._client.pipeline(transaction=True) as pipe:
                try:
                    pipe.watch(key)
                    if _sequence(_first(pipe, key, MAX_DIGITS)) >= sequence:
                        return False
                    pipe.multi()
                    pipe.set(key, str(sequence))
                    pipe.execute()
                except redis.WatchError as error:
                    # redis-py says so of a line that failed, too; then the same try again could last as long as the outage.
                    if isinstance(error.__context__, redis.RedisError | OSError):
                        raise error.__context__ from None
                    continue
                return True
        raise Unavailable("Redis: the pointer changes each time we set it", kind="WATCH")  # it would keep failing

    def latest(self, set_name: str) -> int:
        """Where the pointer points; 0 for nowhere."""
        with self._telling():
            return _sequence(_first(self._client, keys.latest(set_name), MAX_DIGITS))

    def manifest(self, set_name: str, sequence: int) -> bytes:
        """The manifest of a release. Raises NotFound."""
        with self._telling():
            value = _first(self._client, keys.manifest(set_name, sequence), MAX_MANIFEST_BYTES)
        if not 0 < len(value) <= MAX_MANIFEST_BYTES:
            raise NotFound(f"release {set_name}/{sequence}: not in Redis", field="sequence")
        return value

    def missing_chunks(self, set_name: str, sequence: int, manifest: bytes, sizes: Sequence[int]) -> list[int]:
        """Keys whose length is not what it should be, and the manifest if it differs."""
        with self._telling():
            names = [keys.chunk(set_name, sequence, index) for index in range(len(sizes))]
            missing = [index for index, whole in enumerate(self._whole(names, sizes)) if not whole]
            if _first(self._client, keys.manifest(set_name, sequence), len(manifest)) != manifest:
                missing.append(keys.MANIFEST)
        return missing

    def _whole(self, names: Sequence[str], sizes: Sequence[int]) -> Iterator[bool]:
        """Whether each key is a string of its size: of its last byte and the one behind, there is one. Many in one go, as a
        long vector has thousands of chunks; by GETRANGE, which everything here needs anyway."""
        for start in range(0, len(names), LENGTHS_EACH):
            with self._client.pipeline(transaction=False) as pipe:
                for name, size in zip(
                    names[start : start + LENGTHS_EACH], sizes[start : start + LENGTHS_EACH], strict=True
                ):
                    pipe.getrange(name, size - 1, size)
                for end in pipe.execute(raise_on_error=False):
                    if isinstance(end, Exception) and not _is_wrong_type(end):
                        raise end
                    yield isinstance(end, bytes) and len(end) == 1

    def changed_chunks(self, set_name: str, sequence: int, sha256: Mapping[int, bytes]) -> list[int]:
        """Read chunks back and compare; at most a byte more of each than a chunk can have, whatever the store holds."""
        with self._telling():
            return [index for index, digest in sha256.items() if self._sha256(set_name, sequence, index) != digest]

    def _sha256(self, set_name: str, sequence: int, index: int) -> bytes:
        return hashlib.sha256(_first(self._client, keys.chunk(set_name, sequence, index), CHUNK_BYTES)).digest()

    def restore(self, set_name: str, sequence: int, index: int, value: bytes) -> None:
        """Write a manifest or chunk that Redis has lost."""
        with self._telling():
            self._client.set(keys.chunk(set_name, sequence, index), value)

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        """Let an old release go after the grace time."""
        with self._telling():
            for index in range(keys.MANIFEST, chunk_count):
                self._client.expire(keys.chunk(set_name, sequence, index), grace_seconds)

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        """Delete the pointer first, so that no reader is sent to keys that are going."""
        with self._telling():
            self._drop(keys.latest(set_name))
            for sequence, chunk_count in sequences:
                for index in range(keys.MANIFEST, chunk_count):
                    self._drop(keys.chunk(set_name, sequence, index))

    def _drop(self, key: str) -> None:
        try:
            self._client.unlink(key)
        except redis.ResponseError as error:
            if not refused_command(error):
                raise
            self._client.set(key, b"", px=1)  # which a delivery has to be allowed anyway


def _policy(information: object) -> str:
    """From INFO; a cluster answers for each of its nodes."""
    if not isinstance(information, dict):
        return ""
    found = information.get("maxmemory_policy")
    if found is not None:
        return "" if found == "noeviction" else str(found)
    return next(filter(None, map(_policy, information.values())), "")


def _first(client: RedisClient | Pipeline, key: str, most: int) -> bytes:
    """A string key's value, or its first ``most`` bytes and one more, since anyone who writes to Redis decides how long it is;
    empty for a key that is gone or of another type, which is as good as lost and will be written over."""
    try:
        value = client.getrange(key, 0, most)
    except redis.ResponseError as error:
        if _is_wrong_type(error):
            return b""
        raise
    return value if isinstance(value, bytes) else b""


def _is_wrong_type(error: Exception) -> bool:
    """A pipeline says more in front of the code."""
    return isinstance(error, redis.ResponseError) and "WRONGTYPE " in str(error)


def _sequence(value: bytes) -> int:
    """A pointer's value; what is no number of at most 19 digits points nowhere."""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else 0
