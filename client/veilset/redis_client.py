"""One way to connect to Redis or Valkey, for readers and for the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from veilset.errors import InvalidInput, Unavailable, VeilsetError

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
READ_SIZE = 1 << 18

RedisClient = redis.Redis | RedisCluster

# Whatever Redis says or fails to say: the same command may succeed later, and it is not our data's fault.
_TRANSIENT = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError)


def connect_redis(url: str, timeout_seconds: float = 10.0) -> RedisClient:
    """A client for ``url``: redis://, rediss:// (TLS), unix://, or redis+cluster:// and rediss+cluster://.

    Connects at the first command. Two quick retries in place of redis-py's ten, so that an outage is told in seconds.
    Raises InvalidInput for any other URL.
    """
    scheme = check_redis_url(url)
    base = url.replace("+cluster", "", 1) if scheme.endswith("+cluster") else url
    try:
        if scheme.endswith("+cluster"):
            with transient():
                return RedisCluster.from_url(
                    base, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds
                )
        return redis.Redis.from_url(
            base,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
            socket_timeout=timeout_seconds,
            socket_connect_timeout=min(timeout_seconds, 5.0),
            socket_read_size=READ_SIZE,
        )
    except ValueError:
        raise InvalidInput("redis", "a URL such as redis://user:password@host:6379/0") from None


def check_redis_url(url: str) -> str:
    """The URL's scheme. Raises InvalidInput, without the URL in it, since that may hold a password."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidInput("redis", "a URL starting with " + ", ".join(f"{known}://" for known in SCHEMES))
    return scheme


@contextmanager
def transient() -> Iterator[None]:
    """Turn what Redis answers when it is down, full, loading or read-only into Unavailable, naming the kind only."""
    try:
        yield
    except VeilsetError:
        raise
    except (ValueError, RecursionError, AttributeError):  # what redis-py makes of an answer that is no RESP
        raise Unavailable("Redis: does not speak its protocol", kind="PROTOCOL") from None
    except _TRANSIENT as error:
        kind = type(error).__name__
        if type(error) is redis.exceptions.ResponseError:  # its text starts with the code, such as MISCONF
            code = str(error).rpartition("caused error: ")[2].split(" ", 1)[0]  # a pipeline says more in front of it
            kind = code if code.isalpha() and code.isupper() else kind
        raise Unavailable(f"Redis: unavailable ({kind})", kind=kind) from None
