"""Redis as people run it: commands off, narrow rights, a demoted primary, Sentinels, a cluster that loses nodes, wrong URLs.

Nothing is charged that cannot arrive, what is lost comes back, and the cause is named.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import veilset
from harness.certificates import Certificates
from harness.programs import Finished, unused_port, wait_until
from harness.programs import veilset as run
from harness.redis_groups import PRIMARY, Sentinel, start_cluster, start_sentinels
from harness.redis_server import RedisServer, require_redis
from harness.service_process import ServiceProcess
from harness.tcp_proxy import TcpProxy
from harness.vectors import redis_content
from veilset import Service
from veilset._reader import redis_connections
from veilset._reader.sources import RedisSource
from veilset.errors import NotFound, StoreMisconfigured, Unavailable
from veilset_server.redis.store import RedisStore

QUICK = ("--redis-timeout-seconds", "2", "--publish-wait-seconds", "2", "--reconcile-seconds", "0.5")
QUICK_SECONDS = 20.0
"""A cause that lasts is not tried for half a minute; on an idle machine it takes less than six seconds."""
RECOVERY_SECONDS = 10.0
SET = "s"
RELEASE_0 = (f"~veilset:{SET}:0:*", f"~veilset:{SET}:latest")
"""Keys that let every probe pass, and no release."""

StartService = Callable[..., ServiceProcess]
StartRedis = Callable[..., RedisServer]


def fill(service: Service, releases: int = 3, **more: Any) -> None:
    """A small set that may publish so often."""
    service.create_set(SET, size=100, epsilon=3, adjacency="add-remove", budget_epsilon=3 * releases, **more)
    service.add(SET, [f"element {number}" for number in range(100)])


def restrict(server: RedisServer, *rules: str) -> None:
    """Change what the default user may do."""
    server.command("ACL", "SETUSER", "default", *rules)


LACKS = {
    "WATCH": ("-watch",),
    "GETRANGE": ("-getrange",),
    "MULTI": ("-multi",),
    "EXEC": ("-exec",),
    "DISCARD": ("-discard",),
    "UNWATCH": ("-unwatch",),
    "SET": ("-set",),
    "PUBLISH": ("-publish",),
    "the channel of the set": ("resetchannels",),
    "the keys of the set": ("resetkeys", "~other:*"),
}


def test_nothing_is_charged_without_a_right_it_needs(start_service: StartService, start_redis: StartRedis) -> None:
    """Each is named, and once it is granted the same command publishes."""
    server = start_redis()
    process = start_service("--redis", server.url, "--reconcile-seconds", "3600")
    with process.connect() as service:
        fill(service)
        for name, rules in LACKS.items():
            restrict(server, *rules)
            with pytest.raises(StoreMisconfigured, match=f"do not allow {name}") as refused:
                service.publish(SET)
            assert refused.value.request_id
            restrict(server, "+@all", "~*", "&*")
            assert service.budget(SET).charges == 0
        assert not redis_content(server.url)
        assert service.publish(SET).state == "published"


@pytest.mark.parametrize("command", ["WATCH", "UNWATCH", "GETRANGE", "MULTI", "EXEC", "DISCARD", "SET", "PUBLISH"])
def test_a_renamed_command_is_named_before_a_charge(start_redis: StartRedis, command: str) -> None:
    """`rename-command` is how managed services switch commands off."""
    require_redis()
    server = start_redis(arguments=["--rename-command", command, ""])
    with (
        closing(RedisStore(server.url, 5.0)) as store,
        pytest.raises(StoreMisconfigured, match=f"does not know {command},"),
    ):
        store.probe(SET)


WRITER = "-@all +set +getrange +watch +unwatch +multi +exec +discard +publish"
READER = "-@all +getrange"


def test_the_least_rights_of_one_set_are_enough(start_service: StartService, start_redis: StartRedis) -> None:
    """As docs/operating.md lists them; a follower that may not subscribe polls."""
    server = start_redis()
    place = server.url.partition("://")[2]
    for user, rights in (
        ("writer", f"{WRITER} ~veilset:{SET}:* ~veilset:probe &veilset:{SET}:*"),
        ("reader", f"{READER} %R~veilset:{SET}:*"),
    ):
        server.command("ACL", "SETUSER", user, "reset", "on", f">{user}", *rights.split())
    process = start_service("--redis", f"redis://writer:writer@{place}", "--keep-releases", "5", *QUICK)
    with process.connect() as service, veilset_follow(service, f"redis://reader:reader@{place}") as follower:
        before = redis_content(server.url)
        server.command("FLUSHALL")
        wait_until(lambda: redis_content(server.url) == before)
        assert service.publish(SET).state == "published"
        wait_until(lambda: follower.sequence == 2)


def test_a_probe_changes_nothing(start_redis: StartRedis) -> None:
    """Neither a pointer that is there nor anything else, and no follower hears of it."""
    server = start_redis()
    with closing(RedisStore(server.url, 5.0)) as store, server.client() as client, client.pubsub() as listener:
        store.upload(SET, 7, b"manifest", iter([b"bits"]))
        store.move_pointer(SET, 7)
        before = redis_content(server.url)
        listener.subscribe(f"veilset:{SET}:releases")
        assert listener.get_message(timeout=5.0)
        store.probe(SET)
        assert redis_content(server.url) == before
        assert listener.get_message(timeout=0.5) is None


def publish(process: ServiceProcess, *options: str) -> Finished:
    """As a script does."""
    return run("publish", SET, "--server", process.address, "--json", *options)


def test_a_pending_release_has_its_exit_code(start_service: StartService, start_redis: StartRedis) -> None:
    """It says what Redis answered; a further publish charges nothing unless asked to; all arrive in the end."""
    server = start_redis()
    process = start_service("--redis", server.url, *QUICK)
    with process.connect() as service:
        fill(service)
        restrict(server, "resetkeys", *RELEASE_0)
        first = publish(process, "--request-id", "first")
        assert (first.code, json.loads(first.out)["state"]) == (3, "pending")
        assert "do not allow the keys of the set" in first.err
        assert "--request-id first" in first.err
        assert publish(process, "--request-id", "first").code == 3
        second = publish(process)
        assert second.code == 1
        assert "release 1 is charged and Redis does not take it" in second.err
        assert "--although-pending" in second.err
        assert service.budget(SET).charges == 1
        assert publish(process, "--although-pending").code == 3
        assert service.budget(SET).charges == 2
        assert "keys of the set" in service.get_release(SET).delayed_by
        restrict(server, "~*")
        wait_until(lambda: service.get_release(SET).state == "published")
        assert [release.state for release in service.list_releases(SET)] == ["published", "published"]
        assert publish(process).code == 0
        assert service.get_release(SET).delayed_by == ""


def test_a_full_redis_is_charged_for_once(start_service: StartService, start_redis: StartRedis) -> None:
    """Its memory ends in the middle of the release."""
    server = start_redis(arguments=["--maxmemory-policy", "noeviction"])
    process = start_service("--redis", server.url, *QUICK)
    with process.connect() as service:
        fill(service, bits=6 << 23, hashes=1)  # six chunks
        server.command("CONFIG", "SET", "maxmemory", server.command("INFO", "memory")["used_memory"] + (2 << 20))
        assert publish(process).code == 3
        for _ in range(2):
            refused = publish(process)
            assert refused.code == 1
            assert "OutOfMemoryError" in refused.err
        assert service.budget(SET).charges == 1
        server.command("CONFIG", "SET", "maxmemory", 0)
        wait_until(lambda: service.get_release(SET).state == "published")
        assert service.budget(SET).charges == 1


def test_lost_releases_come_back_without_optional_commands(
    start_service: StartService, start_redis: StartRedis
) -> None:
    """Without INFO, STRLEN, EXPIRE and UNLINK: what cannot be done is logged by name, what can be is."""
    require_redis()
    optional = [word for name in ("INFO", "STRLEN", "EXPIRE", "UNLINK") for word in ("--rename-command", name, "")]
    server = start_redis(arguments=optional)
    process = start_service("--redis", server.url, "--keep-releases", "1", *QUICK)
    with process.connect() as service:
        fill(service)
        for _ in range(2):
            assert service.publish(SET).state == "published"
        before = redis_content(server.url)
        server.command("FLUSHALL")
        wait_until(lambda: redis_content(server.url) == before)
        wait_until(lambda: "does not know EXPIRE" in process.log_path.read_text())
        assert veilset.open(server.url, SET).header.sequence == 2
        service.delete_set(SET)
        wait_until(lambda: not redis_content(server.url))


def test_a_demoted_primary_behind_an_address(start_service: StartService, start_redis: StartRedis) -> None:
    """It lives on, read-only, with our connections; new ones lead to the other, which gets the release, and readers too."""
    old, new = start_redis("old"), start_redis("new")
    new.command("REPLICAOF", "127.0.0.1", old.port)
    wait_until(lambda: new.command("INFO", "replication")["master_link_status"] == "up")
    with TcpProxy(old.port) as proxy:
        process = start_service("--redis", proxy.url, *QUICK)
        with process.connect() as service, veilset_follow(service, proxy.url) as follower:
            new.command("REPLICAOF", "NO", "ONE")
            old.command("REPLICAOF", "127.0.0.1", new.port)
            proxy.target = new.port
            began = time.monotonic()
            published_in_the_end(service, "2")
            assert time.monotonic() - began < RECOVERY_SECONDS
            assert redis_content(new.url)[f"veilset:{SET}:latest"] == b"2"
            wait_until(lambda: follower.sequence == 2)
            assert service.budget(SET).charges == 2


def veilset_follow(service: Service, url: str) -> veilset.Follower:
    """Publish once, and follow."""
    fill(service)
    assert service.publish(SET, request_id="1").state == "published"
    return veilset.follow(url, SET, poll_seconds=0.5)


def published_in_the_end(service: Service, request_id: str) -> None:
    """Repeat a publish as its errors say."""

    def is_published() -> bool:
        try:
            return service.publish(SET, request_id=request_id).state == "published"
        except Unavailable as error:
            if isinstance(error, StoreMisconfigured):
                raise
            return False

    wait_until(is_published)


def test_a_name_that_leads_elsewhere(start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server that it led to is well: the next command asks the one that it leads to now."""
    port = unused_port()
    old = start_redis("old", port=port, arguments=["--bind", "127.0.0.1"])
    new = start_redis("new", kind=_Second, port=port, arguments=["--bind", "127.0.0.2"])
    resolve, address = socket.getaddrinfo, "127.0.0.1"
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest: resolve(address if host == "redis.test" else host, *rest)
    )
    monkeypatch.setattr(redis_connections, "RESOLVE_SECONDS", 0.0)
    with closing(RedisStore(f"redis://redis.test:{port}/0", 5.0)) as store:
        store.move_pointer(SET, 1)
        assert old.command("GET", f"veilset:{SET}:latest") == b"1"
        address = "127.0.0.2"
        store.move_pointer(SET, 2)
        assert new.command("GET", f"veilset:{SET}:latest") == b"2"
        assert old.command("GET", f"veilset:{SET}:latest") == b"1"


class _Second(RedisServer):
    """On another address of this machine."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.url = self.url.replace("127.0.0.1", "127.0.0.2")


def test_sentinels_lead_to_the_primary_that_took_over(start_service: StartService, start_redis: StartRedis) -> None:
    """Service, readers and followers, by URLs of which one Sentinel is away."""
    group = start_sentinels(start_redis)
    process = start_service("--redis", group.url, *QUICK)
    with process.connect() as service, veilset_follow(service, group.url) as follower:
        wait_until(lambda: redis_content(group.replica.url) == redis_content(group.primary.url))
        group.sentinels[0].stop()
        group.primary.stop()
        published_in_the_end(service, "2")
        assert redis_content(group.replica.url)[f"veilset:{SET}:latest"] == b"2"
        wait_until(lambda: follower.sequence == 2)
        assert veilset.open(group.url, SET).header.sequence == 2
        with veilset.remote(group.url, SET) as remote:
            assert remote.header.sequence == 2
        assert service.budget(SET).charges == 2


@pytest.fixture
def cluster(start_redis: StartRedis) -> list[RedisServer]:
    """Three primaries and a replica of each."""
    return start_cluster(start_redis)


def cluster_url(nodes: list[RedisServer]) -> str:
    """By some of its nodes."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@pytest.mark.faults
def test_a_cluster_is_found_by_any_of_its_nodes(start_service: StartService, cluster: list[RedisServer]) -> None:
    """The first of the URL is lost: new readers, a restarted service and a follower go on; without others it is named."""
    url = cluster_url(cluster[:2])
    process = start_service("--redis", url, *QUICK, port=unused_port())
    with process.connect() as service, veilset_follow(service, cluster_url(cluster[:1])) as follower:
        wait_until(lambda: _replicated(cluster))
        cluster[0].stop()
        published_in_the_end(service, "2")
        wait_until(lambda: follower.sequence == 2)  # by nodes that it has seen
        assert veilset.open(url, SET).header.sequence == 2
        with pytest.raises(Unavailable, match=f"127.0.0.1:{cluster[0].port}"):
            veilset.open(cluster_url(cluster[:1]), SET)
    process.stop()
    process.start()
    with process.connect() as service:
        published_in_the_end(service, "3")
        assert service.budget(SET).charges == 3


def _replicated(nodes: list[RedisServer]) -> bool:
    sizes = [node.command("DBSIZE") for node in nodes]
    return sizes[:3] == sizes[3:]


def test_a_probe_asks_each_primary_of_a_cluster(start_redis: StartRedis) -> None:
    """Also where the pointer and most keys are on others."""
    nodes = start_cluster(start_redis, replicas=False)
    for node in nodes:
        with closing(RedisStore(cluster_url(nodes), 5.0)) as store:
            restrict(node, "-set")
            with pytest.raises(StoreMisconfigured, match="do not allow SET"):
                store.probe(SET)
            restrict(node, "+set")
            store.probe(SET)
            node.command("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(Unavailable, match="OutOfMemoryError"):
                store.probe(SET)
            node.command("CONFIG", "SET", "maxmemory", 0)
            store.probe(SET)
    assert not any(node.command("DBSIZE") for node in nodes)


@pytest.fixture
def places(start_redis: StartRedis, certificates: Certificates, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the server that a cause needs, without its scheme."""
    kind = request.param
    if kind == "tls":
        server = start_redis(certificates=certificates)
    elif kind == "sentinel":
        primary = start_redis(password="hush")  # noqa: S106
        server = start_redis(
            "sentinel", kind=Sentinel, primary=primary.port, rules=[f"sentinel auth-pass {PRIMARY} hush"]
        )
    elif kind == "locked sentinel":
        server = start_redis("sentinel", kind=_LockedSentinel, primary=unused_port(), rules=["requirepass hush"])
    elif kind in ("protected", "crowded"):
        server = start_redis(arguments=["--protected-mode", "yes"])
    elif kind == "cluster":
        server = start_redis(arguments=["--cluster-enabled", "yes"], password="hush").make_cluster()  # noqa: S106
    elif kind == "plain":
        server = start_redis()
    else:
        server = start_redis(password="hush")  # noqa: S106
    if kind == "protected":
        with TcpProxy(server.port, source="127.0.0.2") as proxy:
            yield f"127.0.0.1:{proxy.port}"
    elif kind == "crowded":
        with server.client() as client:
            client.config_set("maxclients", 1)
            yield f"127.0.0.1:{server.port}"
            client.config_set("maxclients", 100)
    else:
        yield f"localhost:{server.port}" if kind == "tls" else f"127.0.0.1:{server.port}"


class _LockedSentinel(Sentinel):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.url = self.url.replace("redis://", "redis://:hush@")


CA = "?ssl_ca_certs={ca}"
CAUSES = {
    "plain text to TLS": ("tls", "redis://{place}/0", "speaks TLS.*rediss://"),
    "plain text to TLS of a cluster": ("tls", "redis+cluster://{place}", "speaks TLS.*rediss://"),
    "TLS to plain text": ("plain", "rediss://{place}/0" + CA, "speaks plain text.*redis://"),
    "TLS to a plain cluster": ("cluster", "rediss+cluster://:hush@{place}" + CA, "speaks plain text"),
    "no password": ("locked", "redis://{place}/0", "password"),
    "a wrong password": ("locked", "redis://:loud@{place}/0", "password"),
    "a wrong password of a cluster": ("cluster", "redis+cluster://:loud@{place}", "password"),
    "a cluster's node as a server": ("cluster", "redis://:hush@{place}/9", "redis[+]cluster://"),
    "a server as a cluster": ("plain", "redis+cluster://{place}", "is no cluster"),
    "a Sentinel as a server": ("sentinel", "redis://{place}/0", "redis[+]sentinel://"),
    "a Sentinel as a cluster": ("sentinel", "redis+cluster://{place}", "redis[+]sentinel://"),
    "a server as a Sentinel": ("plain", f"redis+sentinel://{{place}}/{PRIMARY}", "no Sentinel"),
    "a name that Sentinels do not know": (
        "sentinel",
        "redis+sentinel://:hush@{place}/other",
        "no primary of that name",
    ),
    "a wrong password behind Sentinels": ("sentinel", f"redis+sentinel://:loud@{{place}}/{PRIMARY}", "password"),
    "no password for Sentinels": ("locked sentinel", f"redis+sentinel://{{place}}/{PRIMARY}", "password"),
    "a database that there is not": ("plain", "redis://{place}/99", "no database of that number"),
    "protected mode": ("protected", "redis://{place}/0", "protected mode"),
    "maxclients": ("crowded", "redis://{place}/0", "maxclients"),
}


@pytest.mark.parametrize(("places", "url", "text"), CAUSES.values(), ids=CAUSES, indirect=["places"])
def test_a_lasting_cause_is_named_at_once(places: str, url: str, text: str, certificates: Certificates) -> None:
    """To readers and to the service, in one sentence without the password, and not after half a minute."""
    require_redis()
    whole = url.format(place=places, ca=certificates.authority)
    for action in (lambda: veilset.open(whole, SET), lambda: _probe(whole)):
        began = time.monotonic()
        with pytest.raises(StoreMisconfigured, match=text) as refused:
            action()
        assert time.monotonic() - began < QUICK_SECONDS
        assert "\n" not in refused.value.message
        assert "hush" not in refused.value.message
        assert "loud" not in refused.value.message


def _probe(url: str) -> None:
    with closing(RedisStore(url, 10.0)) as store:
        store.probe(SET)


def test_the_right_urls_of_those_servers_work(start_redis: StartRedis, certificates: Certificates) -> None:
    """Else the causes would prove nothing."""
    require_redis()
    tls = start_redis("tls", certificates=certificates)
    primary = start_redis("primary", password="hush")  # noqa: S106
    rules = [f"sentinel auth-pass {PRIMARY} hush", "user asker on >hush -@all +sentinel|masters"]
    sentinel = start_redis("sentinel", kind=Sentinel, primary=primary.port, rules=rules)
    wait_until(lambda: "s_down" not in str(sentinel.command("SENTINEL", "MASTERS")))
    behind = f"redis+sentinel://:hush@127.0.0.1:{sentinel.port}/{PRIMARY}/1"
    asker = f"{behind}?sentinel_username=asker&sentinel_password=hush"
    for url in (tls.url, primary.url, behind, asker):
        _probe(url)
        with closing(RedisSource(url, SET)) as source, pytest.raises(NotFound):
            source.latest()
