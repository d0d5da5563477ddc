"""A black-box audit of the publishing path: what a base and three increments tell about one element's whole history.

Thousands of canaries in one set, each with one of two histories, drawn by a coin. An attacker sees what every release answers for
a canary, learns on one half of them which answers speak for which history, and is scored on the other half. Each bound fails by
chance with a probability below 10^-7, and a run has fewer than ten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray
from publish_examples import Desk, MemoryAnchor, MemoryStore
from scipy.stats import beta
from storage_examples import MAX_SETS
from test_generations import describe, publish

from veilset.core.encodings import find_encoding
from veilset.core.encodings.interface import CHUNK_BYTES, MemoryVector
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, Calibration, Operation, PrivacyParameters
from veilset.core.privacy.budget import NANO
from veilset.core.release.signing import open_manifest
from veilset_server.state import runs
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.run_file import Slice, release

CANARIES = 200_000
BACKGROUND = 2_000
RELEASES = 4
ERROR = 1e-9
"""Of each proportion; some 60 are looked at in one bound."""

ADD, REMOVE = Operation.ADD, Operation.REMOVE
History = Mapping[int, Operation]
"""What happens to an element before each release; 0 is the base."""

NEVER: History = {}
BUSY: History = {1: ADD, 2: REMOVE, 3: ADD}
EARLY: History = {1: ADD}
LATE: History = {2: ADD}


def observe(
    folder: Path, encoding: str, histories: tuple[History, History]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which canaries have the second history, bool (n,), and what each release answers for each canary, integers (n, 4)."""
    folder.mkdir()
    desk = Desk(folder, MemoryAnchor(), MemoryStore(folder / LEDGER_NAME))
    privacy = PrivacyParameters(1.0, 0.0, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)
    size = CANARIES + RELEASES * BACKGROUND
    plan = find_encoding(encoding).plan(PlanRequest(size, privacy, bits_per_element=16.0, min_efficiency=0.0))
    desk.ledger.create_set(describe(privacy, plan.parameters, size), 100 * NANO, Fraction(0), MAX_SETS)
    random = np.random.default_rng()
    digests = random.integers(0, 1 << 64, size, dtype=np.uint64)
    canaries, background = digests[:CANARIES], digests[CANARIES:].reshape(RELEASES, BACKGROUND)
    second = random.integers(0, 2, CANARIES).astype(np.bool_)
    answers = []
    for number in range(RELEASES):
        upload(desk, f"background {number}", ADD, background[number])
        for name, chosen, history in (("first", ~second, histories[0]), ("second", second, histories[1])):
            if number in history:
                upload(desk, f"{name} {number}", history[number], canaries[chosen])
        made = publish(desk, f"{number}", increment=number > 0)
        packed = b"".join(desk.artefacts.read(made.set_id, made.sequence, CHUNK_BYTES))
        vector = MemoryVector(np.frombuffer(packed, dtype=np.uint8))
        answers.append(open_manifest(made.manifest).encoding.read(vector, canaries))
    desk.close()
    found = np.stack(answers, axis=1).astype(np.int64)
    return second, (found > 0).astype(np.int64) if encoding == "linear" else found


def upload(desk: Desk, upload_id: str, operation: Operation, digests: NDArray[np.uint64]) -> None:
    """One upload of digests."""
    session = desk.uploads.open("set", upload_id, operation)
    packed = digests.astype("<u8").tobytes()
    for number, start in enumerate(range(0, len(packed), 1 << 19), start=1):
        session.add_digests(number, packed[start : start + (1 << 19)])
    desk.uploads.finish(session, len(digests), xxhash.xxh3_128_digest(packed))


def lower_bound(second: NDArray[np.bool_], answers: NDArray[np.int64]) -> float:
    """A number that ε is not below: the best of the events that the first half of the canaries suggests, on the other half."""
    patterns = answers @ (int(answers.max() + 1) ** np.arange(answers.shape[1]))
    half, kinds = len(patterns) // 2, int(patterns.max()) + 1
    learnt = [np.bincount(patterns[:half][second[:half] == side], minlength=kinds) + 1.0 for side in (False, True)]
    ratios = np.log(learnt[1] / learnt[1].sum()) - np.log(learnt[0] / learnt[0].sum())
    best = 0.0
    for sign in (1.0, -1.0):
        for cut in np.unique(np.round(sign * ratios, 3))[-20:]:
            event = (np.round(sign * ratios, 3) >= cut)[patterns[half:]]
            likely, unlikely = event[second[half:] == (sign > 0)], event[second[half:] == (sign < 0)]
            low = float(beta.ppf(ERROR, likely.sum(), len(likely) - likely.sum() + 1)) if likely.any() else 0.0
            high = float(beta.ppf(1 - ERROR, unlikely.sum() + 1, len(unlikely) - unlikely.sum()))
            best = max(best, math.log(low / high)) if low > 0.0 else best
    return best


@pytest.mark.parametrize(("encoding", "floor"), [("linear", 0.85), ("bloom", 0.8)])
def test_a_whole_life_costs_one_epsilon(encoding: str, floor: float, tmp_path: Path) -> None:
    """Added, removed and added again between four releases, against never."""
    bound = lower_bound(*observe(tmp_path / "state", encoding, (NEVER, BUSY)))
    print(f"{encoding}: whole life, lower bound {bound:.3f} of 1")
    assert floor <= bound <= 1.0


@pytest.mark.parametrize(("encoding", "floor"), [("linear", 1.6), ("bloom", 1.6)])
def test_the_time_of_an_arrival_costs_two_epsilon(encoding: str, floor: float, tmp_path: Path) -> None:
    bound = lower_bound(*observe(tmp_path / "state", encoding, (LATE, EARLY)))
    print(f"{encoding}: time of arrival, lower bound {bound:.3f} of 2")
    assert floor <= bound <= 2.0


def test_a_service_that_releases_again_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what left the set does not count as released any more."""

    def forgetful(content, before, *, tombstones):  # type: ignore[no-untyped-def]
        for found in release(content, before, tombstones=True):
            yield Slice(found.added, found.removed[:0], found.high)

    monkeypatch.setattr(runs, "release", forgetful)
    bound = lower_bound(*observe(tmp_path / "state", "linear", (NEVER, BUSY)))
    print(f"released again: lower bound {bound:.3f}")
    assert bound > 1.2
