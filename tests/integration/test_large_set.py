"""A set of 10^8 elements: upload, publish and compaction hold little memory, however many elements there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.programs import environment

ELEMENTS = 100_000_000
MIB = 1 << 20
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np, xxhash
from harness.peak_memory import own_peak_bytes
from publish_examples import Desk, MemoryAnchor, MemoryStore
from veilset.core.params import Operation
from veilset_server.usecases.upload_session import MAX_BATCH_ELEMENTS

folder, count, hashes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

class Discard(MemoryStore):
    def upload(self, *_): raise AssertionError("not delivered here")

def tell(what, since):
    print(f"{what}: {time.monotonic() - since:.0f} s, {own_peak_bytes() >> 20} MiB at most", flush=True)

desk = Desk(folder, MemoryAnchor(), Discard(folder / "ledger.db"))
desk.create(hashes=hashes, bits=16 * count, budget=9)
random, whole = np.random.default_rng(1), xxhash.xxh3_128()
since = time.monotonic()
session = desk.uploads.open("set", "u")
for number, start in enumerate(range(0, count, MAX_BATCH_ELEMENTS), start=1):
    packed = random.integers(0, 1 << 64, min(MAX_BATCH_ELEMENTS, count - start), np.uint64).tobytes()
    whole.update(packed)
    session.add_digests(number, packed)
tell("upload", since)
since = time.monotonic()
desk.uploads.finish(session, count, whole.digest())
tell("finish", since)
since = time.monotonic()
desk.publish("unsorted")
tell("publish unsorted", since)
since = time.monotonic()
assert desk.runs.compact(1)
desk.runs.discard()
tell("compaction", since)
since = time.monotonic()
desk.publish("sorted")
tell("publish sorted", since)
print(own_peak_bytes())
"""


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hashes", [1, 2])
def test_a_hundred_million_elements(tmp_path: Path, hashes: int) -> None:
    """At most 256 MiB for one position an element; for more, the vector besides."""
    settings = environment() | {"PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parent}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(ELEMENTS), str(hashes)],
        stdout=subprocess.PIPE,
        text=True,
        env=settings,
        check=True,
    )
    print(done.stdout)
    assert int(done.stdout.split()[-1]) < 256 * MIB + (16 * ELEMENTS // 8 if hashes > 1 else 0)
