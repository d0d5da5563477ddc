"""Several redis-servers that know each other: a cluster with a replica for each primary, and a primary watched by Sentinels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.programs import wait_until
from harness.redis_server import RedisServer, require_redis

SLOTS = 16384
PRIMARY = "mymaster"

Start = Callable[..., RedisServer]


def start_cluster(start: Start, primaries: int = 3, *, replicas: bool = True) -> list[RedisServer]:
    """Primaries, then a replica of each; a lost primary is replaced within some seconds."""
    require_redis()
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"]
    nodes = [start(f"node{number}", arguments=options) for number in range(primaries * (1 + replicas))]
    for number, node in enumerate(nodes):
        if number < primaries:
            first, last = SLOTS * number // primaries, SLOTS * (number + 1) // primaries - 1
            node.command("CLUSTER", "ADDSLOTSRANGE", first, last)
        nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port)
    known = b"cluster_known_nodes:%d" % len(nodes)
    wait_until(lambda: all(known in node.command("CLUSTER", "INFO") for node in nodes))
    for number, node in enumerate(nodes[primaries:]):
        node.command("CLUSTER", "REPLICATE", nodes[number].command("CLUSTER", "MYID"))
    wait_until(lambda: all(healthy(node) for node in nodes))
    wait_until(lambda: all(linked(node) for node in nodes[primaries:]))
    return nodes


def healthy(node: RedisServer) -> bool:
    """Whether a node sees every slot served."""
    return b"cluster_state:ok" in node.command("CLUSTER", "INFO")


def linked(replica: RedisServer) -> bool:
    """Whether a replica has caught up with its primary."""
    return bool(replica.command("INFO", "replication").get("master_link_status") == "up")


class Sentinel(RedisServer):
    """One of those that watch the primary on port ``primary``; ``rules``: lines of its configuration beside the usual."""

    def __init__(self, folder: Path, *, primary: int, rules: Sequence[str] = ()) -> None:
        super().__init__(folder)
        folder.mkdir()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1 127.0.0.2",
            f"sentinel monitor {PRIMARY} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {PRIMARY} 1000",
            f"sentinel failover-timeout {PRIMARY} 5000",
            *rules,
        ]
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self._arguments = [str(folder / "sentinel.conf"), "--sentinel"]


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary, its replica, and three Sentinels. url: of all of them."""

    primary: RedisServer
    replica: RedisServer
    sentinels: list[RedisServer]
    url: str


def start_sentinels(start: Start) -> Watched:
    """They agree within two seconds that a primary is gone, and make the replica one."""
    require_redis()
    primary = start("primary")
    replica = start(
        "replica", arguments=["--replicaof", "127.0.0.1", str(primary.port), "--repl-diskless-sync-delay", "0"]
    )
    wait_until(lambda: linked(replica))
    sentinels = [start(f"sentinel{number}", kind=Sentinel, primary=primary.port) for number in range(3)]
    wait_until(lambda: all(_knows_the_others(sentinel) for sentinel in sentinels))
    hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
    return Watched(primary, replica, sentinels, f"redis+sentinel://{hosts}/{PRIMARY}/0")


def _knows_the_others(sentinel: RedisServer) -> bool:
    with sentinel.client() as client:
        state = client.sentinel_masters()[PRIMARY]
    return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1)
