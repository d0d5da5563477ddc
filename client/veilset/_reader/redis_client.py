"""One way to connect to Redis or Valkey, for readers and for the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from veilset._reader.redis_errors import transient
from veilset._reader.redis_url import PROTOCOL, RedisUrl, host_and_port, parse_redis_url

if TYPE_CHECKING:  # redis-py takes a third of a second to import, and who reads a file needs none of it
    import redis
    from redis.cluster import RedisCluster

    RedisClient: TypeAlias = redis.Redis | RedisCluster
else:
    RedisClient = Any

READ_SIZE = 1 << 18
CONNECT_SECONDS = 5.0


def connect_redis(url: str | RedisUrl, timeout_seconds: float = 10.0, retries: int = 2) -> RedisClient:
    """A client for a URL of `redis_url`.

    Connects at the first command, to a cluster at once. retries: quick ones, in place of redis-py's ten, so that an outage is
    told in seconds. Raises InvalidInput, and for a cluster Unavailable and StoreMisconfigured.
    """
    found = url if isinstance(url, RedisUrl) else parse_redis_url(url)
    import redis
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry

    from veilset._reader import redis_connections as connections

    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), retries)
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": min(timeout_seconds, CONNECT_SECONDS),
        "socket_read_size": READ_SIZE,
        "username": found.username,
        "password": found.password,
    }
    tls = _tls_options(found)
    if found.kind == "cluster":
        with transient(found.place):
            return _cluster(found, options | tls, retry)
    options |= {"db": found.database, "retry": retry}
    if found.kind == "unix":
        unix = redis.UnixDomainSocketConnection
        return redis.Redis.from_pool(connections.BoundedPool(unix, path=found.path, **options))
    connection = redis.SSLConnection if found.tls else redis.Connection
    if found.kind == "redis":
        host, port = found.hosts[0]
        return redis.Redis.from_pool(connections.BoundedPool(connection, host=host, port=port, **options, **tls))
    own = {
        "username": found.options.get("sentinel_username"),
        "password": found.options.get("sentinel_password"),
        "db": 0,
        "retry": Retry(ExponentialBackoff(), 0),  # the connection to the primary, which asks them, tries again
    }
    sentinels = [
        redis.Redis.from_pool(connections.BoundedPool(connection, host=host, port=port, **(options | own), **tls))
        for host, port in found.hosts
    ]
    primary = connections.FoundPrimary(sentinels)
    return redis.Redis.from_pool(
        connections.BoundedSentinelPool(primary, found.primary, tls=found.tls, **options, **tls)
    )


def _tls_options(url: RedisUrl) -> dict[str, Any]:
    options: dict[str, Any] = {name: value for name, value in url.options.items() if name.startswith("ssl_")}
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"] == "true"
    return options


def _cluster(url: RedisUrl, options: dict[str, Any], retry: Any) -> RedisCluster:
    """Found by any node of the URL, or by any that was seen earlier; what is seen now is remembered."""
    from redis.cluster import ClusterNode, RedisCluster

    from veilset._reader.redis_connections import BoundedPool

    first, others = url.hosts[0], url.seen.union(url.hosts[1:])
    client = RedisCluster.from_url(  # by a URL, since only so it takes our pool
        f"{'rediss' if url.tls else 'redis'}://{host_and_port(*first)}",
        startup_nodes=[ClusterNode(*host) for host in others],  # type: ignore[no-untyped-call]
        connection_pool_class=BoundedPool,
        protocol=PROTOCOL,
        retry=retry,
        **options,
    )
    url.seen.update((str(node.host), int(node.port)) for node in client.get_nodes())  # type: ignore[no-untyped-call]
    return client
