"""A process that forks with a connection or a follower: the child is told, and helps itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.programs import environment
from harness.service_process import ServiceProcess

PARENT = """
import os, sys
import veilset
from veilset.errors import FailedPrecondition, Unavailable

address, redis, name = sys.argv[1:]
service = veilset.connect(address)
service.create_set(name, size=1000, epsilon=1, adjacency="add-remove", delta=1e-9)
service.add(name, ["element"])
service.publish(name)
follower = veilset.follow(redis, name)
child = os.fork()
if child == 0:
    for use in (lambda: service.get_set(name), lambda: service.add(name, ["other"]), lambda: "element" in follower):
        try:
            use()
        except FailedPrecondition as error:
            print(error)
    with veilset.connect(address) as own:
        for _ in range(10):  # gRPC may close the first connection of a forked process once more
            try:
                print(own.get_set(name).name)
                break
            except Unavailable:
                continue
    with veilset.follow(redis, name) as own_follower:
        print(own_follower.sequence, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert service.get_set(name).name == name and follower.sequence == 1
service.close()
follower.close()
"""


def test_a_forked_child_connects_and_follows_anew(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """What its parent opened refuses there, where it could hang or stand still, and goes on in the parent."""
    command = [sys.executable, "-c", PARENT, service.address, service.redis, set_name]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment(), timeout=120
    )
    assert done.returncode == 0, done.stderr
    connection = (
        "service: this connection was made before this process was forked, and works in its parent only; call "
        "veilset.connect in the child"
    )
    follower = (
        "follower: made before this process was forked, and works in its parent only; call veilset.follow in the child"
    )
    assert done.stdout.splitlines() == [connection, connection, follower, set_name, "1"]
