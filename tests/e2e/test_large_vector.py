"""A vector of 5·10^9 bits, 596 MiB in 597 chunks: above 32-bit positions, above 512 MiB, whole from upload to reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import veilset
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from veilset.core.elements.hashing import digests
from veilset.core.encodings.bloom.vectors import positions

BITS = 5_000_000_000
HASHES = 2
SECONDS = 1500.0
MEBIBYTE = 1 << 20

UPLOADED = [b"uploaded %d" % number for number in range(100_000)]
OTHERS = [b"other %d" % number for number in range(100_000)]


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is not a file's: what `Rss` has beside mapped vectors."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """Anonymous memory of a process, looked at many times a second; the first value is that at the beginning."""
    seen = [anonymous_bytes(pid)]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            seen.append(anonymous_bytes(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def standard_deviations(share: float, rate: float, trials: int) -> float:
    """How far an observed share is from its rate."""
    return float(abs(share - rate) / np.sqrt(rate * (1 - rate) / trials))


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_vector_above_512_mebibytes(start_service: Callable[..., ServiceProcess]) -> None:
    """Upload, publish to a real Valkey, read back verified: answers come at the
    predicted rates (false alarms together below 1e-6, at six standard deviations), and the server's memory does not grow."""
    service = start_service()
    with service.connect() as connection, watched(service.pid) as memory:
        shape = shape_of_set(
            connection.create_set(
                "large",
                size=10**9,
                epsilon=8,
                adjacency="add-remove",
                bits=BITS,
                hashes=HASHES,
                allow_poor_utility=True,
            )
        )
        connection.add("large", UPLOADED)
        release = connection.publish("large", timeout_seconds=SECONDS)
    assert release.state == "published"
    assert len(release.header.chunk_sha256) == 597
    print(f"server: {max(memory) / MEBIBYTE:.0f} MiB of its own memory, {memory[0] / MEBIBYTE:.0f} MiB at the start")
    assert max(memory) < 256 * MEBIBYTE + shape.vector_bytes

    expected = np.unique(positions(digests(UPLOADED, shape.scheme, shape.seed), BITS, HASHES))
    assert np.count_nonzero(expected >> np.uint64(32)) > 1000, "positions that 32 bits do not hold"

    view = veilset.open(service.redis, "large", public_keys=[service.public_key])
    for elements, rate in (
        (UPLOADED, view.decoder.true_positive_rate),
        (OTHERS, view.decoder.false_positive_rate),
    ):
        share = float(view.contains_many(elements).mean())
        print(f"{elements[0].decode()}, …: {share:.5f} answered yes, {rate:.5f} predicted")
        assert standard_deviations(share, rate, len(elements)) < 6
