"""A Redis that cannot take a release: an error that tells its kind, and never the server's own text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.programs import unused_port, wait_until
from harness.redis_server import RedisServer
from veilset.errors import InvalidInput, Unavailable
from veilset_server.adapters.redis_store import RedisStore

SECRET = "the-password"  # noqa: S105 - a test's
CHUNKS = [b"first", b"second"]


def kind_of(action: Callable[[], object]) -> str:
    """The kind of unavailability; the server's own text is not told."""
    with pytest.raises(Unavailable) as failure:
        action()
    kind = failure.value.details["kind"]
    assert str(failure.value) == f"Redis: unavailable ({kind})"
    return kind


def write_and_ask(store: RedisStore) -> tuple[str, str, str]:
    """How a release, a pointer and the question before both fail."""
    return (
        kind_of(lambda: store.upload("set", 1, b"manifest", iter(CHUNKS))),
        kind_of(lambda: store.move_pointer("set", 1)),
        kind_of(store.ping),
    )


def test_servers_that_take_no_writes(start_redis: Callable[..., RedisServer]) -> None:
    """Full, a replica, without enough replicas, unable to save; and well again."""
    server = start_redis()
    store = RedisStore(server.url, timeout_seconds=5.0)
    server.command("CONFIG", "SET", "maxmemory", 1)
    assert write_and_ask(store) == ("OutOfMemoryError",) * 3
    server.command("CONFIG", "SET", "maxmemory", 0)
    server.command("CONFIG", "SET", "min-replicas-to-write", 1)
    assert write_and_ask(store) == ("NOREPLICAS",) * 3
    server.command("CONFIG", "SET", "min-replicas-to-write", 0)
    server.command("REPLICAOF", "127.0.0.1", unused_port())
    assert write_and_ask(store) == ("ReadOnlyError",) * 3
    server.command("REPLICAOF", "NO", "ONE")
    store.upload("set", 1, b"manifest", iter(CHUNKS))
    store.move_pointer("set", 1)
    assert store.latest("set") == 1
    store.close()


def test_waiting_for_replicas(start_redis: Callable[..., RedisServer]) -> None:
    """The pointer stays where it is until as many replicas as asked for hold the release."""
    server = start_redis(arguments=["--repl-diskless-sync-delay", "0"])
    store = RedisStore(server.url, timeout_seconds=1.6, replicas=1)
    with pytest.raises(Unavailable, match="0 of 1 replicas"):
        store.upload("set", 1, b"manifest", iter(CHUNKS))
    replica = start_redis("replica", arguments=["--replicaof", "127.0.0.1", str(server.port)])
    wait_until(lambda: linked(replica))
    store.close()
    store = RedisStore(server.url, timeout_seconds=10.0, replicas=1)
    store.upload("set", 1, b"manifest", iter(CHUNKS))
    store.move_pointer("set", 1)
    assert replica.command("GET", "veilset:set:latest") == b"1"
    store.close()


def test_replicas_of_a_cluster_cannot_be_waited_for() -> None:
    """WAIT asks one node; so it is refused before anything is promised."""
    with pytest.raises(InvalidInput) as refusal:
        RedisStore("redis+cluster://127.0.0.1:6379", timeout_seconds=1.0, replicas=1)
    assert refusal.value.field == "replicas"


def linked(replica: RedisServer) -> bool:
    """Whether a replica has caught up."""
    with replica.client() as client:
        return bool(client.info("replication").get("master_link_status") == "up")


@pytest.mark.parametrize(("password", "kind"), [("", "AuthenticationError"), ("wrong", "AuthenticationError")])
def test_a_wrong_password(password: str, kind: str, start_redis: Callable[..., RedisServer]) -> None:
    """Neither password is repeated."""
    server = start_redis(password=SECRET)
    user = f":{password}@" if password else ""
    store = RedisStore(f"redis://{user}127.0.0.1:{server.port}/0", timeout_seconds=5.0)
    assert write_and_ask(store) == (kind,) * 3
    store.close()


def test_nobody_there() -> None:
    """Told in a second or two, not after redis-py's own ten tries."""
    for scheme in ("redis", "redis+cluster"):
        store = RedisStore(f"{scheme}://127.0.0.1:{unused_port()}", timeout_seconds=1.0)
        assert kind_of(store.ping) in ("ConnectionError", "RedisClusterException")
        store.close()


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "", "redis://localhost:port", "rediss://[::1"])
def test_what_is_no_url_is_not_repeated(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(InvalidInput) as refusal:
        RedisStore(url, timeout_seconds=1.0).ping()
    assert refusal.value.field == "redis"
    assert not url or url not in str(refusal.value)
