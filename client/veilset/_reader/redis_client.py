"""One way to connect to Redis or Valkey, for readers and for the service."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from veilset._reader.redis_replies import PROTOCOL, BoundedPool
from veilset.errors import InvalidInput, StoreMisconfigured, Unavailable, VeilsetError

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
READ_SIZE = 1 << 18
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

RedisClient = redis.Redis | RedisCluster

# What redis-py makes of an answer that is no RESP, or not what the command answers; by the kind, as each comes from many places.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, AssertionError)

# Whatever Redis says or fails to say: the same command may succeed later, and it is not our data's fault.
_TRANSIENT = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError)


def connect_redis(url: str, timeout_seconds: float = 10.0, retries: int = 2) -> RedisClient:
    """A client for ``url``: redis://, rediss:// (TLS), unix://, or redis+cluster:// and rediss+cluster://.

    Connects at the first command. retries: quick ones, in place of redis-py's ten, so that an outage is told in seconds.
    Raises InvalidInput for any other URL.
    """
    scheme = check_redis_url(url)
    base = url.replace("+cluster", "", 1) if scheme.endswith("+cluster") else url
    try:
        if scheme.endswith("+cluster"):
            with transient():
                return RedisCluster.from_url(
                    base,
                    socket_timeout=timeout_seconds,
                    socket_connect_timeout=timeout_seconds,
                    connection_pool_class=BoundedPool,
                    protocol=PROTOCOL,
                )
        pool = BoundedPool.from_url(
            base,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries),
            socket_timeout=timeout_seconds,
            socket_connect_timeout=min(timeout_seconds, 5.0),
            socket_read_size=READ_SIZE,
        )
        return redis.Redis.from_pool(pool)
    except ValueError:
        raise InvalidInput("redis", "a URL such as redis://user:password@host:6379/0") from None


def check_redis_url(url: str) -> str:
    """The URL's scheme. Raises InvalidInput, without the URL in it, since that may hold a password; for TLS's files too."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidInput("redis", "a URL starting with " + ", ".join(f"{known}://" for known in SCHEMES))
    for name, values in parse_qs(url.partition("?")[2]).items():
        if name in _TLS_FILES and not os.access(values[-1], os.R_OK):
            raise InvalidInput("redis", f"a URL whose {name} is a readable file", values[-1])
        if name == "protocol" and values[-1] != str(PROTOCOL):
            raise InvalidInput("redis", f"a URL whose protocol, if it names one, is {PROTOCOL}", values[-1])
    try:  # a bad port would else be noticed at the first command, by a service that then tries for ever
        redis.connection.parse_url(url.replace("+cluster", "", 1))  # type: ignore[no-untyped-call]
    except ValueError:
        raise InvalidInput("redis", "a URL such as redis://user:password@host:6379/0") from None
    return scheme


def place_of(url: str) -> str:
    """Host and port of a URL, or its socket, for people to read: never the user or the password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 6379}"


@contextmanager
def transient(place: str = "") -> Iterator[None]:
    """Turn what Redis answers when it is down, full, loading or read-only into Unavailable, naming the kind only, and what
    will not pass by itself (a password, an access rule, a cluster taken for a single server or the other way round) into
    StoreMisconfigured."""
    try:
        yield
    except VeilsetError:
        raise
    except _MALFORMED:
        raise Unavailable("Redis: does not speak its protocol", kind="PROTOCOL") from None
    except _TRANSIENT as error:
        kind = type(error).__name__
        hint = _lasting(error)
        if hint:
            raise StoreMisconfigured(f"Redis: refuses us ({kind}): {hint}", kind=kind) from None
        if type(error) is redis.exceptions.ResponseError:  # its text starts with the code, such as MISCONF
            code = str(error).rpartition("caused error: ")[2].split(" ", 1)[0]  # a pipeline says more in front of it
            kind = code if code.isalpha() and code.isupper() else kind
        raise Unavailable(f"Redis: unavailable ({kind}){f' at {place}' if place else ''}", kind=kind) from None


def _lasting(error: BaseException) -> str:
    """What somebody has to change before the same command can succeed; empty if time alone may do."""
    if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthenticationWrongNumberOfArgsError):
        return "it wants another user or password in the URL"
    if isinstance(error, redis.exceptions.NoPermissionError):
        return "its access rules do not allow what is needed"
    if isinstance(error, redis.exceptions.ConnectionError) and (fault := _tls_fault(error)):
        return fault
    if isinstance(error, redis.exceptions.MovedError):
        return "it is a node of a cluster; give a redis+cluster:// URL"
    if isinstance(error, redis.exceptions.RedisClusterException) and "mode is not enabled" in str(error):
        return "it is no cluster; give a redis:// URL"
    return ""


def _tls_fault(error: BaseException) -> str:
    """What TLS had to say, which redis-py tells as a lost connection; empty where it was none of TLS."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate does not verify ({cause.verify_message}); ssl_ca_certs in the URL names whom to trust"
            )
        if isinstance(cause, ssl.SSLError) and "CERTIFICATE_REQUIRED" in (cause.reason or ""):
            return "it asks for a client certificate; give ssl_certfile and ssl_keyfile in the URL"
        if isinstance(cause, ssl.SSLError) and "MISMATCH" in (cause.reason or ""):
            return "ssl_certfile and ssl_keyfile in the URL do not belong together"
        cause = cause.__context__
    return ""
