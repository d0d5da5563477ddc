"""One way to connect to Redis or Valkey, for readers and for the service; and what Redis answers as one of our errors.

redis-py takes a third of a second to import, so this module imports it only when a client is made or an error is met. redis-py's
errors wrap one another, the informative one often innermost. Redis's own text is never repeated: only a command's name and an
address are taken from it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from veilset._reader.redis_url import PROTOCOL, RedisUrl, host_and_port, parse_redis_url
from veilset.errors import StoreMisconfigured, Unavailable, VeilsetError

if TYPE_CHECKING:
    import redis
    from redis.cluster import RedisCluster

    RedisClient: TypeAlias = redis.Redis | RedisCluster
else:
    RedisClient = Any

# What redis-py makes of an answer that is no RESP, or not what the command answers; by the kind, as each comes from many places.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, AssertionError)

_EXPIRED, _NOT_YET_VALID = 10, 9
_NAME_MISMATCH = (62, 64)  # of a name, of an address

READ_SIZE = 1 << 18
CONNECT_SECONDS = 5.0


@contextmanager
def transient(place: str = "") -> Iterator[None]:
    """Translate redis-py's errors: into Unavailable, with the kind and the place, if Redis is down, full, loading or read-only;
    into StoreMisconfigured, with what to do, if waiting does not help (a password, an access rule, a wrong scheme)."""
    try:
        yield
    except VeilsetError:
        raise
    except Exception as error:
        found = _translate(error, place)
        if found is None:
            raise
        raise found from None


def _translate(error: Exception, place: str) -> VeilsetError | None:
    import redis

    if isinstance(error, _MALFORMED) and not isinstance(error, redis.RedisError):
        return Unavailable("Redis: the server does not speak its protocol", kind="PROTOCOL")
    if not isinstance(error, redis.RedisError | redis.RedisClusterException | OSError):
        return None
    causes = list(_chain(error))
    for cause in causes:
        if hint := _lasting(cause):
            kind = "UnknownCommand" if _unknown_command(cause) else type(cause).__name__
            return StoreMisconfigured(f"Redis: refuses us ({kind}): {hint}", kind=kind)
    kind = type(error).__name__
    if type(error) is redis.ResponseError:  # its text starts with the code, such as MISCONF
        code = str(error).rpartition("caused error: ")[2].split(" ", 1)[0]  # a pipeline says more in front of it
        kind = code if code.isalpha() and code.isupper() else kind
    named = next(filter(None, map(_address, causes)), place)
    return Unavailable(f"Redis: unavailable ({kind}){f' at {named}' if named else ''}", kind=kind)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was raised from, or while handling."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _address(error: BaseException) -> str:
    """The address in redis-py's text, for a URL of several hosts."""
    found = re.search(r"(?:connecting to|reading from) (\[?[\w.:-]{1,255}\]?:[0-9]{1,5})\b", str(error))
    return found[1] if found else ""


def _lasting(error: BaseException) -> str:
    """What has to be changed before the same command can succeed; empty if waiting may be enough."""
    import redis

    text = str(error)
    if isinstance(error, ssl.SSLError):
        return _tls_fault(error)
    if isinstance(error, redis.AuthenticationError | redis.AuthenticationWrongNumberOfArgsError):
        return "it wants another user or password in the URL"
    if isinstance(error, redis.exceptions.NoPermissionError) or (
        isinstance(error, redis.exceptions.ExecAbortError) and "NOPERM" in text  # of EXEC itself
    ):
        return f"its access rules do not allow {_forbidden(error) or 'what is needed'}"
    if isinstance(error, redis.exceptions.MovedError):
        return "it is a node of a cluster; give a redis+cluster:// URL"
    if hasattr(error, "mend"):  # `redis_connections.Lasting`
        return str(error.mend)
    if isinstance(error, redis.RedisError):
        return mend_of(text)
    return ""


def mend_of(text: str) -> str:
    """What has to be changed, from Redis's own text; empty if waiting may be enough."""
    if "cluster support disabled" in text:
        return "it is no cluster; give a redis:// URL"
    if "not allowed in cluster mode" in text:
        return "it is a node of a cluster; give a redis+cluster:// URL"
    if (command := _unknown_command_of(text)) == "SENTINEL":
        return "it is no Sentinel; a server's URL starts with redis:// or rediss://"
    if command:
        return f"it does not know {command}, which is renamed or switched off there; a Sentinel's URL starts with redis+sentinel://"
    if "DB index" in text:
        return "it has no database of that number; the URL ends with one that it has, such as /0"
    if "protected mode" in text:
        return "its protected mode answers its own machine only; give it a password, or switch that mode off"
    if "max number of clients" in text:
        return "it serves as many clients as its maxclients allows; raise that, or close some"
    return ""


def refused_command(error: BaseException) -> bool:
    """Whether Redis does not know the command, or does not allow it."""
    import redis

    return isinstance(error, redis.exceptions.NoPermissionError) or bool(_unknown_command(error))


def _forbidden(error: BaseException) -> str:
    """What the access rules refuse, if Redis says so: a command, a key or a channel."""
    text = str(error)
    if found := re.search(r"'([A-Za-z|_-]{1,40})' command", text):
        return found[1].upper()
    if "channel" in text:
        return "the channel of the set"
    return "the keys of the set" if "key" in text else ""


def _unknown_command(error: BaseException) -> str:
    import redis

    return _unknown_command_of(str(error)) if isinstance(error, redis.ResponseError) else ""


def _unknown_command_of(text: str) -> str:
    found = re.search(r"unknown command [`']([A-Za-z|_-]{1,40})[`']", text, re.IGNORECASE)
    return found[1].upper() if found else ""


def _tls_fault(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return f"its certificate is for another name or address than the URL's ({error.verify_message})"
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return f"its certificate does not verify ({error.verify_message}); renew it, or check the clocks"
        return f"its certificate does not verify ({error.verify_message}); ssl_ca_certs in the URL names the authority to trust"
    if "CERTIFICATE_REQUIRED" in reason:
        return "it asks for a client certificate; give ssl_certfile and ssl_keyfile in the URL"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason):
        alert = reason.lower().replace("_", " ")
        return f"it refuses this client's certificate ({alert}); give ssl_certfile and ssl_keyfile that it accepts"
    if "MISMATCH" in reason:
        return "ssl_certfile and ssl_keyfile in the URL do not belong together"
    return ""


def connect_redis(url: str | RedisUrl, timeout_seconds: float = 10.0, retries: int = 2) -> RedisClient:
    """A client for a URL of `redis_url`.

    Connects at the first command, to a cluster at once. retries: quick ones, instead of redis-py's ten, so that an outage is an
    error within seconds. Raises InvalidInput, and for a cluster Unavailable and StoreMisconfigured.
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
        "retry": Retry(ExponentialBackoff(), 0),  # the connection to the primary, which asks them, retries
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
    """A client of a cluster, found by any node of the URL or any that was seen earlier; remembers the nodes seen now."""
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
