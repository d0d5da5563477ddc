"""ReleaseStore port on Redis or Valkey. Every write may be repeated; the pointer moves last and only forward."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import redis
from redis.client import Pipeline

from veilset._reader.redis_client import RedisClient, check_redis_url, connect_redis, transient
from veilset._reader.release_file import MAX_MANIFEST_BYTES
from veilset.core.release import redis_keys as keys
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import InvalidInput, NotFound, Unavailable

MAX_DIGITS = 19
POINTER_TRIES = 100
LENGTHS_EACH = 1000


class RedisStore:
    """Releases in Redis, in the key layout of `core.release.redis_keys`.

    replicas: how many replicas must hold a release before the pointer moves (WAIT); 0 asks none.
    """

    def __init__(self, url: str, timeout_seconds: float, replicas: int = 0) -> None:
        """Connects at the first use. Raises InvalidInput for what is no Redis URL, and for replicas in a cluster, where WAIT
        asks one node only."""
        if replicas and "+cluster://" in url:
            raise InvalidInput("replicas", "0 with a cluster; set min-replicas-to-write on its nodes", replicas)
        check_redis_url(url)
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._replicas = replicas
        self._connected: RedisClient | None = None

    @property
    def _client(self) -> RedisClient:
        if self._connected is None:  # a cluster client talks at once, and the service may start before Redis
            self._connected = connect_redis(self._url, self._timeout_seconds)
        return self._connected

    def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()

    def ping(self) -> None:
        """Raises Unavailable if Redis does not answer or refuses writes."""
        with transient():
            self._client.set(keys.PROBE, b"", xx=True)  # a write that writes nothing, as no such key exists

    def evicts(self) -> str:
        """Redis's maxmemory-policy, unless it is noeviction or access rules forbid to ask."""
        with transient():
            try:
                return _policy(self._client.info("memory"))
            except redis.exceptions.NoPermissionError:
                return ""

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        """Write chunks, then the manifest."""
        with transient():
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
        with transient():
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
        raise Unavailable("Redis: the pointer changes each time we set it", kind="WATCH")  # or it says so for ever

    def latest(self, set_name: str) -> int:
        """Where the pointer points; 0 for nowhere."""
        with transient():
            return _sequence(_first(self._client, keys.latest(set_name), MAX_DIGITS))

    def manifest(self, set_name: str, sequence: int) -> bytes:
        """The manifest of a release. Raises NotFound."""
        with transient():
            value = _first(self._client, keys.manifest(set_name, sequence), MAX_MANIFEST_BYTES)
        if not 0 < len(value) <= MAX_MANIFEST_BYTES:
            raise NotFound(f"release {set_name}/{sequence}: not in Redis", field="sequence")
        return value

    def missing_chunks(self, set_name: str, sequence: int, manifest: bytes, sizes: Sequence[int]) -> list[int]:
        """Keys whose length is not what it should be, and the manifest if it differs."""
        with transient():
            names = [keys.chunk(set_name, sequence, index) for index in range(len(sizes))]
            lengths = enumerate(zip(self._lengths(names), sizes, strict=True))
            missing = [index for index, (length, size) in lengths if length != size]
            if _first(self._client, keys.manifest(set_name, sequence), len(manifest)) != manifest:
                missing.append(keys.MANIFEST)
        return missing

    def _lengths(self, names: Sequence[str]) -> Iterator[object]:
        """STRLEN of each key, many in one go: a long vector has thousands of chunks. Of another type: an error, no number."""
        for start in range(0, len(names), LENGTHS_EACH):
            with self._client.pipeline(transaction=False) as pipe:
                for name in names[start : start + LENGTHS_EACH]:
                    pipe.strlen(name)
                for length in pipe.execute(raise_on_error=False):
                    if isinstance(length, Exception) and not _is_wrong_type(length):
                        raise length
                    yield length

    def changed_chunks(self, set_name: str, sequence: int, sha256: Mapping[int, bytes]) -> list[int]:
        """Read chunks back and compare; at most a byte more of each than a chunk can have, whatever the store holds."""
        with transient():
            return [index for index, digest in sha256.items() if self._sha256(set_name, sequence, index) != digest]

    def _sha256(self, set_name: str, sequence: int, index: int) -> bytes:
        return hashlib.sha256(_first(self._client, keys.chunk(set_name, sequence, index), CHUNK_BYTES)).digest()

    def restore(self, set_name: str, sequence: int, index: int, value: bytes) -> None:
        """Write one key again."""
        with transient():
            self._client.set(keys.chunk(set_name, sequence, index), value)

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        """Let an old release go after the grace time."""
        with transient():
            for index in range(keys.MANIFEST, chunk_count):
                self._client.expire(keys.chunk(set_name, sequence, index), grace_seconds)

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        """Delete the pointer first, so that no reader is sent to keys that are going."""
        with transient():
            self._client.unlink(keys.latest(set_name))
            for sequence, chunk_count in sequences:
                for index in range(keys.MANIFEST, chunk_count):
                    self._client.unlink(keys.chunk(set_name, sequence, index))


def _policy(information: object) -> str:
    """From INFO; a cluster answers for each of its nodes."""
    if not isinstance(information, dict):
        return ""
    found = information.get("maxmemory_policy")
    if found is not None:
        return "" if found == "noeviction" else str(found)
    return next(filter(None, map(_policy, information.values())), "")


def _first(client: RedisClient | Pipeline, key: str, most: int) -> bytes:
    """A string key's value, or its first ``most`` bytes and one more, since whoever writes to Redis decides how long it is;
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
