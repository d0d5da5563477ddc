"""A Redis that cannot take a release: an error that tells its kind, and never the server's own text."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from harness.programs import unused_port, wait_until
from harness.redis_server import RedisServer
from veilset.errors import InvalidInput, StoreMisconfigured, Unavailable
from veilset_server.redis.store import RedisStore

SECRET = "the-password"  # noqa: S105 - a test's
CHUNKS = [b"first", b"second"]


def kind_of(action: Callable[[], object]) -> str:
    """The kind of unavailability that may pass by itself; the server's own text is not told."""
    with pytest.raises(Unavailable) as failure:
        action()
    kind = failure.value.details["kind"]
    assert str(failure.value).startswith(f"Redis: unavailable ({kind}) at 127.0.0.1:")
    assert not isinstance(failure.value, StoreMisconfigured)
    return kind


def lasting_kind_of(action: Callable[[], object]) -> str:
    """The kind of refusal that somebody has to do something about; the text says what, and repeats no secret."""
    with pytest.raises(StoreMisconfigured) as failure:
        action()
    kind = failure.value.details["kind"]
    text = str(failure.value)
    assert text.startswith(f"Redis: refuses us ({kind}): ")
    assert SECRET not in text
    return kind


def write_and_ask(store: RedisStore, kind: Callable[[Callable[[], object]], str] = kind_of) -> tuple[str, str, str]:
    """How a release, a pointer and the question before both fail."""
    return (
        kind(lambda: store.upload("set", 1, b"manifest", iter(CHUNKS))),
        kind(lambda: store.move_pointer("set", 1)),
        kind(store.ping),
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


def test_a_server_that_is_loading(start_redis: Callable[..., RedisServer]) -> None:
    """Restarted, it reads a dump that takes long; what was there before is there again then."""
    server = start_redis()
    store = RedisStore(server.url, timeout_seconds=5.0)
    store.upload("set", 1, b"manifest", iter(CHUNKS))
    store.move_pointer("set", 1)
    server.restart_loading()
    assert write_and_ask(store) == ("BusyLoadingError",) * 3
    assert kind_of(lambda: store.latest("set")) == "BusyLoadingError"
    server.end_loading()
    store.ping()
    assert (store.latest("set"), store.manifest("set", 1)) == (1, b"manifest")
    store.close()


def test_a_server_that_cannot_save(start_redis: Callable[..., RedisServer]) -> None:
    """MISCONF: told to save snapshots, and its folder is gone."""
    server = start_redis()
    store = RedisStore(server.url, timeout_seconds=5.0)
    server.command("SET", "other", 1)
    server.command("CONFIG", "SET", "save", "3600 1")
    shutil.rmtree(server.folder)
    server.command("BGSAVE")
    wait_until(lambda: server.command("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
    assert write_and_ask(store) == ("MISCONF",) * 3
    server.command("CONFIG", "SET", "save", "")
    store.ping()
    store.close()


def test_a_node_of_a_cluster_and_a_server_that_is_none(start_redis: Callable[..., RedisServer]) -> None:
    """MOVED to a client that takes a node for the whole; and the other way round. No waiting helps."""
    server = start_redis(arguments=["--cluster-enabled", "yes"])
    server.command("CLUSTER", "ADDSLOTSRANGE", 0, 1)  # nearly all slots are elsewhere, but nobody knows where
    server.command("CLUSTER", "MEET", "127.0.0.1", unused_port())
    store = RedisStore(server.url, timeout_seconds=5.0)
    assert write_and_ask(store) == ("ClusterDownError",) * 3
    store.close()
    first, second = (start_redis(f"node {n}", arguments=["--cluster-enabled", "yes"]) for n in range(2))
    first.command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
    second.command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
    first.command("CLUSTER", "MEET", "127.0.0.1", second.port)
    for node in (first, second):
        wait_until(lambda node=node: b"cluster_state:ok" in node.command("CLUSTER", "INFO"))  # type: ignore[misc]
    for node in (first, second):
        store = RedisStore(node.url, timeout_seconds=5.0)
        refusals = [lambda n=n, s=store: s.upload(f"set-{n}", 1, b"manifest", iter(CHUNKS)) for n in range(20)]
        assert {lasting_kind_of(refusal) for refusal in refusals if not succeeds(refusal)} == {"MovedError"}
        store.close()
    single = start_redis("single")
    store = RedisStore(single.url.replace("redis://", "redis+cluster://"), timeout_seconds=5.0)
    assert lasting_kind_of(store.ping) == "ResponseError"
    store.close()


def succeeds(action: Callable[[], object]) -> bool:
    """Whether it does: its keys are on the node that was asked."""
    try:
        action()
    except Unavailable:
        return False
    return True


def test_access_rules_that_forbid(start_redis: Callable[..., RedisServer]) -> None:
    """NOPERM stays until somebody changes the rules."""
    server = start_redis()
    server.command("ACL", "SETUSER", "default", "-set")
    store = RedisStore(server.url, timeout_seconds=5.0)
    assert lasting_kind_of(store.ping) == "NoPermissionError"
    server.command("ACL", "SETUSER", "default", "+@all")
    store.ping()
    store.close()


@pytest.mark.parametrize("cluster", [False, True])
def test_a_policy_that_evicts_is_told(start_redis: Callable[..., RedisServer], cluster: bool) -> None:
    """Unless it evicts nothing, or will not say."""
    server = start_redis(arguments=["--cluster-enabled", "yes"] if cluster else [])
    store = RedisStore((server.make_cluster() if cluster else server).url, timeout_seconds=5.0)
    assert store.evicts() == ""
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert store.evicts() == "allkeys-lru"
    server.command("ACL", "SETUSER", "default", "-info")
    assert store.evicts() == ""
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
    assert write_and_ask(store, lasting_kind_of) == (kind,) * 3
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
