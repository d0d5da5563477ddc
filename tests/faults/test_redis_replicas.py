"""A release becomes visible once as many replicas hold it as were asked for; a cluster of three nodes spreads the chunks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from ledger_copy import read_ledger
from stricken import create_small_set, wait_for

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.vectors import redis_content
from veilset._reader.reader import open_view
from veilset._service.service import Service
from veilset.errors import Unavailable

QUICK = ("--redis-timeout-seconds", "1", "--publish-wait-seconds", "1", "--reconcile-seconds", "0.5")
AT_ONCE = ("--repl-diskless-sync-delay", "0")
NODES = 3
SLOTS = 16384
CHUNKS = 12


@pytest.mark.faults
def test_a_replica_that_is_asked_for_holds_the_release(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """With none it stays pending and invisible; with one it is published; with that one hanging it is pending again."""
    master, replica = start_redis(arguments=AT_ONCE), start_redis(name="replica")
    process = start_service("--redis", master.url, "--replicas", "1", *QUICK)
    with process.connect() as service:
        create_small_set(service)
        with trying("no replica where one is asked for"):
            assert service.publish("s", request_id="1").state == "pending"
            assert "veilset:s:latest" not in redis_content(master.url)
        replica.command("REPLICAOF", "127.0.0.1", str(master.port))
        assert wait_for(lambda: service.get_release("s", 1).state == "published", 15.0)
        assert redis_content(replica.url) == redis_content(master.url)
        with trying("the replica goes away"):
            replica.stop()
            assert service.publish("s", request_id="2").state == "pending"
            assert redis_content(master.url)["veilset:s:latest"] == b"1"
            replica.start()
            replica.command("REPLICAOF", "127.0.0.1", str(master.port))
            assert wait_for(lambda: service.get_release("s", 2).state == "published", 15.0)
            assert open_view(replica.url, "s").header.sequence == 2
            assert service.budget("s").charges == 2


def test_wait_asks_for_the_connection_that_wrote(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer]
) -> None:
    """WAIT counts replicas for the writes of its own connection; so each follows a write of the same one, and at once."""
    master, replica = start_redis(arguments=AT_ONCE), start_redis(name="replica")
    replica.command("REPLICAOF", "127.0.0.1", str(master.port))
    assert wait_for(lambda: "online" in str(master.command("INFO", "replication").get("slave0")), 15.0)
    process = start_service("--redis", master.url, "--replicas", "1", *QUICK)
    with process.connect() as service, master.client() as client, client.monitor() as monitor:
        create_small_set(service)
        assert service.publish("s", request_id="1").state == "published"
        client.set("end", "1")
        seen: list[tuple[str, str]] = []
        while (entry := monitor.next_command())["command"].split()[:2] != ["SET", "end"]:
            seen.append((str(entry["client_port"]), entry["command"].split()[0]))
    waits = [index for index, (_, command) in enumerate(seen) if command == "WAIT"]
    assert len(waits) >= 2  # one is repeated where the replica was slow
    for index in waits:
        own = [command for port, command in seen[:index] if port == seen[index][0]]
        assert own[-1] in ("SET", "PUBLISH")


@pytest.fixture
def cluster(start_redis: Callable[..., RedisServer]) -> list[RedisServer]:
    """Three nodes that know each other and share the slots."""
    nodes = [
        start_redis(name=f"node{number}", arguments=("--cluster-enabled", "yes", "--cluster-node-timeout", "1000"))
        for number in range(NODES)
    ]
    for number, node in enumerate(nodes):
        first, last = SLOTS * number // NODES, SLOTS * (number + 1) // NODES - 1
        node.command("CLUSTER", "ADDSLOTSRANGE", first, last)
        nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port)
    assert wait_for(lambda: all(_knows_all(node) for node in nodes), 20.0)
    return nodes


def _knows_all(node: RedisServer) -> bool:
    info: bytes = node.command("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and b"cluster_known_nodes:%d" % NODES in info


def test_a_cluster_of_three_nodes(
    cluster: list[RedisServer], start_service: Callable[..., ServiceProcess], trying: Trying
) -> None:
    """Published, read, spread; emptied and mended; a node lost and come back; deleted."""
    url = f"redis+cluster://127.0.0.1:{cluster[0].port}"
    process = start_service("--redis", url, "--keep-releases", "1", *QUICK)
    with process.connect() as service:
        create_small_set(service, bits=CHUNKS << 23)
        first = service.publish("s", request_id="1")
        assert first.state == "published"
        view = open_view(url, "s", public_keys=[process.public_key])
        assert view.header.sequence == 1
        assert all(node.command("DBSIZE") for node in cluster)
        assert sum(node.command("DBSIZE") for node in cluster) == CHUNKS + 2
        with trying("a cluster's node emptied"):
            cluster[1].command("FLUSHALL")
            assert wait_for(lambda: sum(node.command("DBSIZE") for node in cluster) == CHUNKS + 2, 11.0)
            assert (open_view(url, "s").vector == view.vector).all()
        with trying("a cluster's node gone"):
            port = cluster[2].port
            cluster[2].stop()
            assert not _published(service)
            assert service.add("s", ["c"]).elements == 1
            cluster[2].start()
            assert cluster[2].port == port
            assert wait_for(lambda: all(_knows_all(node) for node in cluster), 20.0)
            assert wait_for(lambda: _published(service), 20.0)
            assert open_view(url, "s").header.sequence == 2
            assert service.budget("s").charges == 2
        service.delete_set("s")
        assert not sum(node.command("DBSIZE") for node in cluster)
        assert all(row.state == "expired" for row in read_ledger(process.state).charges)


def _published(service: Service) -> bool:
    """Whether the second publish goes through: it may be refused, or be charged and pending."""
    with suppress(Unavailable):
        return service.publish("s", request_id="2").state == "published"
    return False
