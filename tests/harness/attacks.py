"""Hostile clients as programs, so that they take no time from the honest one that is measured.

python -m harness.attacks KIND ADDRESS TOKEN SIZE      (TOKEN may be -)

prints one JSON object: how the calls ended.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from harness.hostile_http2 import ADD_ELEMENTS, GET_SET, HEALTH, HostileConnection, framed
from harness.patience import SECONDS
from harness.raw_headers import RawConnection, cases
from veilset.v1 import membership_pb2 as pb

Ends = dict[str, int]
STALLED_PER_CONNECTION = 50
TRICKLE_SECONDS = 0.05
NOBODY = "-"


def resets(address: str, token: str | None, size: int) -> Ends:
    """``size`` streams opened and reset at once (CVE-2023-44487)."""
    done = connections = 0
    while done < size:
        with HostileConnection(address, token) as connection:
            connections += 1
            while done < size and connection.gone is None and not connection.closed:
                for _ in range(min(100, size - done)):
                    connection.reset(connection.open(ADD_ELEMENTS))
                    done += 1
                connection.flush()
                connection.read(0)
    return {"streams": done, "connections": connections}


def stalled(address: str, token: str | None, size: int) -> Ends:
    """``size`` upload streams that say nothing, until standard input ends."""
    with ExitStack() as stack:
        connections = []
        for start in range(0, size, STALLED_PER_CONNECTION):
            connection = stack.enter_context(HostileConnection(address, token))
            for _ in range(min(STALLED_PER_CONNECTION, size - start)):
                connection.open(ADD_ELEMENTS)
            connection.flush()
            connections.append(connection)
        _say_ready()
        sys.stdin.read()
        for connection in connections:
            while connection.read(0.2):
                pass
        return Counter(status for connection in connections for status in connection.statuses.values())


def trickling(address: str, token: str | None, size: int) -> Ends:
    """``size`` uploads whose first message comes byte by byte and never whole, until standard input ends."""
    message = framed(
        pb.AddElementsRequest(open=pb.OpenUpload(set_name="x" * 60, upload_id="y" * 100)).SerializeToString()
    )
    with HostileConnection(address, token) as connection:
        streams = [connection.open(ADD_ELEMENTS) for _ in range(size)]
        connection.flush()
        _say_ready()
        sent = 0
        while not select.select([sys.stdin], [], [], TRICKLE_SECONDS)[0]:
            if sent < len(message) - 1:
                for stream in streams:
                    connection.send(stream, message[sent : sent + 1])
                sent += 1
            connection.read(0)
        while connection.read(0.2):
            pass
        return Counter(connection.statuses.values())


def oversize(address: str, token: str | None, size: int) -> Ends:
    """Messages of ``size`` bytes, and short ones that claim 4 GiB, unary and as a stream."""
    ends: Ends = Counter()
    for path in (GET_SET, ADD_ELEMENTS):
        for length, claimed in ((size, None), (1000, 0xFFFF_FFFF), (5 << 20, 0xFFFF_FFFF)):
            with HostileConnection(address, token) as connection:
                stream = connection.open(path)
                connection.send(stream, framed(bytes(length), claimed), end=True)
                ends[connection.wait_for(stream)] += 1
    return ends


def metadata(address: str, token: str | None, size: int) -> Ends:
    """Headers of ``size`` bytes: one long one, and many short ones."""
    ends: Ends = Counter()
    for headers in ([("x", "a" * size)], [(f"x{number}", "a" * 10) for number in range(size // 50)]):
        with HostileConnection(address, token) as connection:
            stream = connection.open(HEALTH, headers, end=True)
            connection.flush()
            ends[connection.wait_for(stream)] += 1
    return ends


def headers(address: str, token: str | None, size: int) -> Ends:
    """``size`` calls, each with something wrong in its headers, over and over; in one frame, in two, and byte by byte."""
    ends: Ends = Counter()
    wrong = list(cases())
    for number in range(size):
        _, block = wrong[number % len(wrong)]
        pieces = (1, 2, 1 << 12)[number // len(wrong) % 3]
        with RawConnection(address) as connection:
            ends[connection.call(block, pieces)] += 1
    return ends


KINDS: dict[str, Callable[[str, str | None, int], Ends]] = {
    "resets": resets,
    "stalled": stalled,
    "trickling": trickling,
    "oversize": oversize,
    "metadata": metadata,
    "headers": headers,
}


class Attack:
    """One attack as a process; a context manager that ends it. ``ends`` waits for it and tells how its calls ended."""

    def __init__(self, kind: str, address: str, token: str | None, size: int) -> None:
        command = [sys.executable, "-m", "harness.attacks", kind, address, token or NOBODY, str(size)]
        folder = Path(__file__).parents[1]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)

    def __enter__(self) -> Attack:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait until all its streams are open."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def ends(self, seconds: float = SECONDS) -> Ends:
        """How its calls ended: by grpc-status, or how else; those that are open at the end are not among them."""
        out, _ = self._process.communicate(timeout=seconds)
        found: Ends = json.loads(out.splitlines()[-1])
        return found


def _say_ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    kind, address, token, size = sys.argv[1:]
    print(json.dumps(KINDS[kind](address, None if token == NOBODY else token, int(size))))
