"""Hostile clients as programs, so that they take no time from the honest one that is measured.

python -m harness.attacks KIND ADDRESS TOKEN SIZE      (TOKEN may be -)

prints one JSON object: how the calls ended.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import grpc

from harness.hostile_http2 import ADD_ELEMENTS, GET_SET, HEALTH, HostileConnection, framed
from harness.patience import SECONDS
from harness.raw_headers import RawConnection, cases
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

Ends = dict[str, int]
STALLED_PER_CONNECTION = 50
TRICKLE_SECONDS = 0.05
NOBODY = "-"
HEAVY_BYTES = 2 << 20


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
    wrong = list(cases())

    def play(number: int) -> str:
        with RawConnection(address) as connection:
            return connection.call(wrong[number % len(wrong)][1], (1, 2, 1 << 12)[number // len(wrong) % 3])

    with ThreadPoolExecutor(8) as threads:
        return Counter(threads.map(play, range(size)))


def _heavy(kind: str, length: int) -> bytes:
    """A message of at most so many bytes that takes many times as many once it is decoded, or that is as long as it may be."""
    room = length - 64
    if kind == "parts":
        return _field(3, b"\x1a\x00" * (room // 2))
    if kind == "digests":
        return pb.AddElementsRequest(
            batch=pb.Batch(sequence=1, digests=bytes(min(room, 1 << 19) // 8 * 8))
        ).SerializeToString()
    element = {"empty": b"\x0a\x00", "short": b"\x0a\x01a", "long": b"\x0a\x80\x20" + b"a" * 4096}[kind]
    return _field(2, b"\x08\x01" + _field(2, element * (room // len(element))))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field, built by hand: some of these no library would build in little memory."""
    length, coded = len(content), b""
    while length >= 128:
        coded += bytes([length % 128 + 128])
        length //= 128
    return bytes([number << 3 | 2]) + coded + bytes([length]) + content


def heavy(address: str, token: str | None, size: int) -> Ends:
    """``size`` uploads that each send one heavy message, of five kinds, with and without gzip, and stay as long as they may."""
    messages = [_heavy(kind, HEAVY_BYTES) for kind in ("empty", "short", "long", "parts", "digests")]
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with ExitStack() as stack, ThreadPoolExecutor(size) as threads:
        channels = [
            stack.enter_context(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
            for _ in range(4)
        ]
        begin = Barrier(size)

        def play(number: int) -> str:
            opening = pb.OpenUpload(set_name="honest", upload_id=f"heavy {number}")
            sent = iter([pb.AddElementsRequest(open=opening).SerializeToString(), messages[number % len(messages)]])
            calls: Any = channels[number % 4].stream_stream(ADD_ELEMENTS)
            begin.wait(60)
            packed = grpc.Compression.Gzip if number % 2 else grpc.Compression.NoCompression
            try:
                for _ in calls(sent, metadata=metadata, compression=packed, timeout=120):
                    pass
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        return Counter(threads.map(play, range(size)))


def greedy(address: str, token: str | None, size: int) -> Ends:
    """``size`` uploads of ordinary batches, as fast as they go, until standard input ends. Every second one brings text that is
    slow to normalize, for the set ``slow``."""
    over = Event()
    digests = pb.Batch(digests=bytes(8 << 16))
    marks = "".join("a" + "\u0327\u0301" * 15 for _ in range(40)).encode()
    text = pb.Batch(elements=pb.Elements(values=[marks] * 500))
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(size + 1) as threads:
        stub = MembershipServiceStub(channel)

        def messages(number: int) -> Iterator[pb.AddElementsRequest]:
            opening = pb.OpenUpload(set_name="slow" if number % 2 else "honest", upload_id=f"greedy {number}")
            yield pb.AddElementsRequest(open=opening)
            for sequence in itertools.count(1):
                if over.is_set():
                    return
                batch = pb.Batch()
                batch.CopyFrom(text if number % 2 else digests)
                batch.sequence = sequence
                yield pb.AddElementsRequest(batch=batch)

        def play(number: int) -> str:
            answers = 0
            try:
                for _ in stub.AddElements(messages(number), metadata=metadata):
                    answers += 1
            except grpc.RpcError as error:
                return f"{error.code().name} {answers > 1}"
            return "OK"

        playing = [threads.submit(play, number) for number in range(size)]
        _say_ready()
        sys.stdin.read()
        over.set()
        return Counter(each.result() for each in playing)


KINDS: dict[str, Callable[[str, str | None, int], Ends]] = {
    "resets": resets,
    "stalled": stalled,
    "trickling": trickling,
    "oversize": oversize,
    "metadata": metadata,
    "headers": headers,
    "heavy": heavy,
    "greedy": greedy,
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
