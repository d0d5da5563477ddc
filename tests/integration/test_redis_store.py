"""Releases in Redis, Valkey and a cluster: the pointer only moves forward, and all writes may be repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from harness.redis_server import RedisServer, require_redis
from harness.vectors import redis_content
from veilset._reader.redis_keys import MANIFEST
from veilset.errors import NotFound
from veilset_server.redis.store import RedisStore

CHUNKS = [b"first", b"second", b"third"]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Debian's redis-server by itself."""
    require_redis()
    yield from running(RedisServer(tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A cluster of one server."""
    for server in running(RedisServer(tmp_path_factory.mktemp("cluster"), arguments=["--cluster-enabled", "yes"])):
        yield server.make_cluster()


def running(server: RedisServer) -> Iterator[RedisServer]:
    """Start it, and end it at the end."""
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=["valkey", "redis_server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Each kind of server, empty."""
    if request.param == "valkey":
        found: str = request.getfixturevalue("valkey_url")
    else:
        found = request.getfixturevalue(request.param).url
    with plain_client(found) as client:
        client.flushall()
    return found


def plain_client(url: str) -> redis.Redis:
    """A client to look with; our clusters have one node."""
    return redis.Redis.from_url(url.replace("+cluster", ""), decode_responses=True)


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    """The store under test."""
    found = RedisStore(url, timeout_seconds=5.0)
    yield found
    found.close()


def test_a_release_becomes_visible_with_its_pointer(store: RedisStore, url: str) -> None:
    """Chunks and manifest first, under the names that readers know; repeating any of it changes nothing."""
    assert store.latest("set") == 0
    with pytest.raises(NotFound):
        store.manifest("set", 1)
    for _ in range(2):
        store.upload("set", 1, b"manifest", iter(CHUNKS))
        assert store.latest("set") == 0
    with plain_client(url) as client, client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("veilset:set:releases")
        listener.get_message(timeout=5.0)
        for _ in range(2):
            store.move_pointer("set", 1)
            assert store.latest("set") == 1
        first = listener.get_message(timeout=5.0)
        assert first is not None
        assert first["data"] == "1"
        assert sorted(client.scan_iter()) == [
            *(f"veilset:set:1:bits:{index}" for index in range(3)),
            "veilset:set:1:manifest",
            "veilset:set:latest",
        ]
        assert client.get("veilset:set:1:bits:1") == "second"
        assert client.get("veilset:set:latest") == "1"
    assert store.manifest("set", 1) == b"manifest"


def test_the_pointer_never_moves_back(store: RedisStore) -> None:
    """Nor does a pointer that is no number keep it from moving."""
    for sequence, expected in ((3, 3), (2, 3), (3, 3), (11, 11), (9, 11)):
        store.move_pointer("set", sequence)
        assert store.latest("set") == expected
    assert store.latest("another") == 0


def test_concurrent_movers_end_at_the_highest(url: str) -> None:
    """Each with a connection of its own; a reader never sees it go back meanwhile."""
    movers, moves = 6, 15
    together = threading.Barrier(movers + 1)
    done = threading.Event()
    seen: list[int] = []
    failures: list[BaseException] = []

    def run(task: Callable[[RedisStore], None]) -> None:
        store = RedisStore(url, timeout_seconds=5.0)
        try:
            together.wait(20)
            task(store)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)
        finally:
            store.close()

    def move(store: RedisStore, first: int) -> None:
        for sequence in range(first, movers * moves + 1, movers):
            store.move_pointer("set", sequence)

    def watch(store: RedisStore) -> None:
        while not done.is_set():
            seen.append(store.latest("set"))
        seen.append(store.latest("set"))

    tasks: list[Callable[[RedisStore], None]] = [lambda s, first=n + 1: move(s, first) for n in range(movers)]  # type: ignore[misc]
    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    watcher = threading.Thread(target=run, args=(watch,))
    for thread in [*threads, watcher]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert failures == []
    assert seen == sorted(seen)
    assert seen[-1] == movers * moves


def test_what_is_missing_is_found_and_restored(store: RedisStore, url: str) -> None:
    """Keys that are gone, cut or another's; only those."""
    sizes = [len(chunk) for chunk in CHUNKS]
    assert store.missing_chunks("set", 1, b"manifest", sizes) == [0, 1, 2, MANIFEST]
    store.upload("set", 1, b"manifest", iter(CHUNKS))
    assert store.missing_chunks("set", 1, b"manifest", sizes) == []
    with plain_client(url) as client:
        client.delete("veilset:set:1:bits:0")
        client.set("veilset:set:1:bits:2", "four")
        client.set("veilset:set:1:manifest", "another")
    assert store.missing_chunks("set", 1, b"manifest", sizes) == [0, 2, MANIFEST]
    for index, value in ((0, CHUNKS[0]), (2, CHUNKS[2]), (MANIFEST, b"manifest")):
        store.restore("set", 1, index, value)
    assert store.missing_chunks("set", 1, b"manifest", sizes) == []
    assert redis_content(url.replace("+cluster", "")) == {
        **{f"veilset:set:1:bits:{index}": chunk for index, chunk in enumerate(CHUNKS)},
        "veilset:set:1:manifest": b"manifest",
    }


def test_old_releases_expire_and_deleted_sets_go(store: RedisStore, url: str) -> None:
    """Each without touching another release or set."""
    for name, sequence in (("set", 1), ("set", 2), ("other", 1)):
        store.upload(name, sequence, b"manifest", iter(CHUNKS))
        store.move_pointer(name, sequence)
    store.expire("set", 1, len(CHUNKS), 300)
    with plain_client(url) as client:
        lives = {name: client.ttl(name) for name in client.scan_iter()}
        assert len(lives) == 14
        for name, seconds in lives.items():
            assert (0 < seconds <= 300) if name.startswith("veilset:set:1:") else seconds == -1, name
        store.remove("set", [(1, len(CHUNKS)), (2, len(CHUNKS)), (3, 1)])
        assert {name for name in client.scan_iter() if not name.startswith("veilset:other:")} == set()
        assert len(list(client.scan_iter())) == 5
    assert store.latest("set") == 0
    assert store.latest("other") == 1


def test_asking_whether_it_takes_writes_writes_nothing(store: RedisStore, url: str) -> None:
    """It is asked before every publish."""
    store.ping()
    store.probe("set")
    assert redis_content(url.replace("+cluster", "")) == {}
