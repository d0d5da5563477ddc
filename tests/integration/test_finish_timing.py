"""The time of a finish does not tell whether its elements were in the set."""

from __future__ import annotations

import gc
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray
from publish_examples import Desk, MemoryAnchor, MemoryStore
from scipy.stats import ttest_ind

from veilset.core.params import Operation
from veilset_server.state.ledger.file import LEDGER_NAME

FINISHES = 200
SENT = 2000
CROPPED = 0.1
LIMIT, TRIES = 4.5, 3


@pytest.mark.parametrize("operation", [Operation.ADD, Operation.REMOVE])
def test_members_take_as_long_as_non_members(tmp_path: Path, operation: Operation) -> None:
    """Welch's t of uploads in random order, the slowest tenth left out. Noise of the machine exceeds the limit once in 150,000
    tries; a difference that belongs to the content is there in every try."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create()
    random = np.random.default_rng()
    members = random.integers(0, 1 << 64, 60_000, np.uint64)
    send(desk, "members", Operation.ADD, members)
    scores: list[float] = []
    while len(scores) < TRIES and not any(abs(score) <= LIMIT for score in scores):
        scores.append(measure(desk, operation, members, random, len(scores)))
    desk.close()
    assert any(abs(score) <= LIMIT for score in scores), scores


def measure(
    desk: Desk, operation: Operation, members: NDArray[np.uint64], random: np.random.Generator, turn: int
) -> float:
    there = random.random(FINISHES) < 0.5
    nanoseconds = np.zeros(FINISHES, dtype=np.int64)
    for number in range(FINISHES):
        sent = random.choice(members, SENT) if there[number] else random.integers(0, 1 << 64, SENT, np.uint64)
        nanoseconds[number] = send(desk, f"{turn}/{number}", operation, sent)
        desk.runs.compact(1)
        if operation is Operation.REMOVE and number % 10 == 9:
            send(desk, f"{turn}/{number} back", Operation.ADD, members)
    kept = nanoseconds <= np.quantile(nanoseconds, 1 - CROPPED)
    return float(ttest_ind(nanoseconds[kept & there], nanoseconds[kept & ~there], equal_var=False).statistic)


def send(desk: Desk, upload_id: str, operation: Operation, digests: NDArray[np.uint64]) -> int:
    """A whole upload; returns the nanoseconds of its finish."""
    session = desk.uploads.open("set", upload_id, operation)
    session.add_digests(1, digests.tobytes())
    checksum = xxhash.xxh3_128_digest(digests.tobytes())
    gc.disable()
    try:
        start = perf_counter_ns()
        desk.uploads.finish(session, len(digests), checksum)
        return perf_counter_ns() - start
    finally:
        gc.enable()
