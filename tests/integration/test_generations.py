"""Base releases and increments of one service: content, charges and generations are those of a plain Python model.

Releases are read back from their artefacts. At ε = 64 with 32 planes a linear vector shows exactly what it holds: an element is
dropped with probability e^-64, and another answered yes with 2^-32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from publish_examples import Desk, MemoryAnchor, MemoryStore
from storage_examples import MAX_SETS

from veilset.core.encodings import find_encoding
from veilset.core.encodings.interface import CHUNK_BYTES, MemoryVector, Parameters
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import Adjacency, Calibration, HashParameters, Normalization, Operation, PrivacyParameters
from veilset.core.privacy.budget import NANO
from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import BudgetExceeded, FailedPrecondition, InvalidInput, StateCorrupted, VeilsetError
from veilset_server.records import Charge, ReleaseState, SetDescription, StoredRelease
from veilset_server.state import runs as runs_module
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.run_file import fold
from veilset_server.usecases.budgets import CountPurchase
from veilset_server.usecases.publishing import PublishRequest

EPSILON = REMOVALS = 64.0
UNIVERSE = 24
DAY_US = 86_400 * 10**6
PRIVACY = PrivacyParameters(EPSILON, 0.0, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)


def digest(number: int) -> int:
    """Element ``number`` of a small universe, spread over all digests."""
    return number * ((1 << 64) // UNIVERSE)


EVERY = np.array([digest(number) for number in range(UNIVERSE)], dtype=np.uint64)


def make_set(desk: Desk, increments: int = 3, removals: float = REMOVALS, days: int = 0, budget: int = 10_000) -> None:
    """A set whose releases show exactly what they hold."""
    encoding = LinearParameters.calibrate(PRIVACY, {"columns": 512, "planes": 32})
    described = replace(
        describe(PRIVACY, encoding, UNIVERSE), increments=increments, removals_epsilon=removals, expire_days=days
    )
    desk.ledger.create_set(described, budget * NANO, Fraction(0), MAX_SETS)


def describe(privacy: PrivacyParameters, encoding: Parameters, size: int) -> SetDescription:
    """A set for ``size`` elements in a base and in each of three increments."""
    return SetDescription(
        name="set",
        hashing=HashParameters(seed=1),
        encoding=encoding,
        privacy=privacy,
        normalization=Normalization.NONE,
        account="set",
        created_at_us=0,
        declared_size=size,
        shared_seed=False,
        increments=3,
        increment_capacity=size,
    )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    make_set(made)
    yield made
    made.close()


def send(desk: Desk, upload_id: str, operation: Operation, numbers: list[int]) -> None:
    """One upload of these elements."""
    packed = np.array([digest(number) for number in numbers], dtype="<u8").tobytes()
    desk.uploads.add_digests("set", upload_id, operation, packed)


def publish(desk: Desk, request_id: str, *, increment: bool = False, deliver: bool = True) -> StoredRelease:
    """A release, marked as delivered."""
    release = desk.publishing.charge(PublishRequest("set", request_id, increment=increment))
    if deliver:
        desk.ledger.mark_release(release.set_id, release.sequence, ReleaseState.PUBLISHED)
    return release


def shown(desk: Desk, release: StoredRelease) -> tuple[ReleaseHeader, set[int], set[int]]:
    """Header, elements and removed elements of a release, from the bytes that readers get."""
    header = open_manifest(release.manifest)
    packed = b"".join(desk.artefacts.read(release.set_id, release.sequence, CHUNK_BYTES))
    vector = np.frombuffer(packed, dtype=np.uint8)
    assert len(vector) == header.vector_bytes

    def members(encoding: Parameters, part: np.ndarray) -> set[int]:
        return set(np.flatnonzero(encoding.read(MemoryVector(part), EVERY)).tolist())

    length = header.encoding.vector_bytes
    removed = set() if header.tombstones is None else members(header.tombstones, vector[length:])
    return header, members(header.encoding, vector[:length]), removed


def released(desk: Desk) -> tuple[set[int], set[int]]:
    """What the ledger says that the generation has released: elements, and removed elements."""
    generation = desk.ledger.generation(1)
    assert generation is not None
    added: list[int] = []
    removed: list[int] = []
    with desk.runs._folded(generation.released) as run:
        for found in fold([run], keep_removed=True):
            added += found.added.tolist()
            removed += found.removed.tolist()
    numbers = {digest(number): number for number in range(UNIVERSE)}
    return {numbers[found] for found in added}, {numbers[found] for found in removed}


class Generations(RuleBasedStateMachine):
    """A desk beside a plain model of what each release has to hold and to cost."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.added: dict[int, int] = {}  # element → day of its last add
        self.released: set[int] | None = None  # of the generation; None without one
        self.gone: set[int] = set()
        self.base = self.made = self.number = self.sequence = self.spent = self.day = 0

    @initialize(increments=st.integers(0, 3), removals=st.booleans(), days=st.integers(0, 3))
    def make(self, increments: int, removals: bool, days: int) -> None:
        self.increments, self.days, self.removals = increments, days, removals and increments > 0
        self.own = self.folder / f"{len(list(self.folder.iterdir()))}"
        self.own.mkdir()
        self.desk = Desk(self.own, MemoryAnchor(), MemoryStore(self.own / LEDGER_NAME))
        make_set(self.desk, increments, REMOVALS if self.removals else 0.0, days)

    @property
    def content(self) -> set[int]:
        return {element for element, day in self.added.items() if not self.days or day + self.days >= self.day}

    @rule(
        operation=st.sampled_from(Operation),
        numbers=st.lists(st.integers(0, UNIVERSE - 1), min_size=1, max_size=6),
    )
    def upload(self, operation: Operation, numbers: list[int]) -> None:
        self.number += 1
        send(self.desk, f"{self.number}", operation, numbers)
        if operation is Operation.REPLACE:
            self.added.clear()
        for element in numbers:
            if operation is Operation.REMOVE:
                self.added.pop(element, None)
            else:
                self.added[element] = self.day

    @rule(days=st.integers(1, 2))
    def wait(self, days: int) -> None:
        self.day += days
        self.desk.clock.time_us += days * DAY_US

    @rule()
    def publish_base(self) -> None:
        self.number += 1
        if not self.sequence and not self._holds_any():
            return
        release = publish(self.desk, f"{self.number}")
        header, added, removed = shown(self.desk, release)
        assert (header.is_base, header.generation, added, removed) == (True, release.sequence, self.content, set())
        self.spent += int(EPSILON + (REMOVALS if self.removals else 0))
        self.base, self.made, self.sequence = release.sequence, 0, release.sequence
        self.released, self.gone = (set(self.content) if self.increments else None), set()

    def _holds_any(self) -> bool:
        return self.desk.runs.holds_any(self.desk.ledger.get_set("set").set_id)

    @rule(lose=st.integers(0, 5))
    def publish_increment(self, lose: int) -> None:
        self.number += 1
        if self.released is None or self.made == self.increments:
            with pytest.raises(FailedPrecondition, match=r"^increment: "):
                publish(self.desk, f"{self.number}", increment=True)
            return
        release = publish(self.desk, f"{self.number}", increment=True, deliver=False)
        again = publish(self.desk, f"{self.number}", increment=True, deliver=False)
        assert again == release
        state = ReleaseState.LOST if lose == 0 else ReleaseState.PUBLISHED
        self.desk.ledger.mark_release(release.set_id, release.sequence, state)
        header, added, removed = shown(self.desk, release)
        live = self.released - self.gone
        assert added == self.content - self.released
        left = live - self.content if self.removals else set()
        assert left <= removed  # of fewer planes, which may say yes by mistake
        assert (header.generation, header.privacy.epsilon) == (self.base, EPSILON)
        self.released |= added
        self.gone |= left
        self.made += 1
        assert released(self.desk) == (self.released - self.gone, self.gone)

    @rule(whole=st.booleans())
    def compact(self, whole: bool) -> None:
        self.desk.runs.compact(self.desk.ledger.get_set("set").set_id, whole=whole)
        self.desk.runs.discard()

    @rule()
    def restart(self) -> None:
        now = self.desk.clock.time_us
        self.desk.close()
        self.desk = Desk(self.own, self.desk.anchor, self.desk.store)
        self.desk.clock.time_us = now
        assert not self.desk.aside

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "desk"):
            assert self.desk.held() == sorted(digest(element) for element in self.content)
            assert self.desk.account().spent_nano_epsilon == self.spent * NANO

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.close()


def run_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    """With folding due after every other upload, and ranges of a few digests."""
    monkeypatch.setattr(Generations, "folder", tmp_path, raising=False)
    monkeypatch.setattr(runs_module, "MANY_RUNS", 2)
    monkeypatch.setattr(runs_module, "MANY_SMALL", 2)
    for module in ("run_file", "runs"):
        monkeypatch.setattr(f"veilset_server.state.{module}.LIMIT", 8)
    Generations.TestCase.settings = settings(max_examples=examples, stateful_step_count=20, deadline=None)
    Generations.TestCase().runTest()


def test_any_history_gives_the_releases_of_a_plain_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_model(tmp_path, monkeypatch, 40)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_many_histories_give_the_releases_of_a_plain_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_model(tmp_path, monkeypatch, 600)


def test_an_element_is_released_once_in_a_generation(desk: Desk) -> None:
    """Also one that is removed and added again; and a removal is shown once."""
    send(desk, "1", Operation.ADD, [1, 2, 3])
    assert shown(desk, publish(desk, "base"))[1] == {1, 2, 3}
    send(desk, "2", Operation.REMOVE, [1])
    _, added, removed = shown(desk, publish(desk, "first", increment=True))
    assert (added, removed >= {1}, released(desk)) == (set(), True, ({2, 3}, {1}))
    send(desk, "3", Operation.ADD, [1, 4])
    assert shown(desk, publish(desk, "second", increment=True))[1] == {4}
    assert shown(desk, publish(desk, "third", increment=True))[1] == set()
    assert released(desk) == ({2, 3, 4}, {1})
    assert desk.account().spent_nano_epsilon == int(EPSILON + REMOVALS) * NANO
    assert shown(desk, publish(desk, "next base"))[1] == {1, 2, 3, 4}


def test_every_increment_names_the_releases_before_it(desk: Desk) -> None:
    send(desk, "1", Operation.ADD, [1])
    releases = [publish(desk, "base"), publish(desk, "first", increment=True), publish(desk, "second", increment=True)]
    headers = [open_manifest(release.manifest) for release in releases]
    assert [len(header.earlier) for header in headers] == [0, 1, 2]
    assert [part.sequence for part in headers[2].earlier] == [1, 2]
    assert {header.generation for header in headers} == {1}


def test_a_lost_increment_is_not_named_and_not_released_again(desk: Desk) -> None:
    """What it held waits for the next base release."""
    send(desk, "1", Operation.ADD, [1])
    publish(desk, "base")
    send(desk, "2", Operation.ADD, [2])
    lost = publish(desk, "first", increment=True, deliver=False)
    with pytest.raises(FailedPrecondition, match=r"^increment: release 2 .* is still on its way"):
        publish(desk, "second", increment=True)
    desk.ledger.mark_release(lost.set_id, lost.sequence, ReleaseState.LOST)
    header, added, _ = shown(desk, publish(desk, "second", increment=True))
    assert ([part.sequence for part in header.earlier], added) == ([1], set())
    assert shown(desk, publish(desk, "next base"))[1] == {1, 2}


def test_increments_are_refused_with_nothing_charged(desk: Desk) -> None:
    """Before a base, beyond the plan, with what only a base may change, after a confirmed loss, and of a deleted set."""
    send(desk, "1", Operation.ADD, [1])

    def refusal(request: PublishRequest, kind: type[VeilsetError] = FailedPrecondition) -> str:
        before = desk.account()
        with pytest.raises(kind) as caught:
            desk.publishing.charge(request)
        assert desk.account() == before
        return caught.value.message

    assert "has no base release" in refusal(PublishRequest("set", "early", increment=True))
    publish(desk, "base")
    with pytest.raises(FailedPrecondition, match="made a base release, 1"):
        publish(desk, "base", increment=True)
    for changed in ({"epsilon": 1.0}, {"encoding": "bloom"}, {"count": CountPurchase(1.0, 0.0)}, {"increments": 5}):
        (name,) = changed
        with pytest.raises(InvalidInput, match=f"^{name} is that of the base release"):
            PublishRequest("set", "changed", increment=True, **changed)
    for number in range(3):
        publish(desk, f"{number}", increment=True)
    assert "all 3 increments" in refusal(PublishRequest("set", "fourth", increment=True))
    publish(desk, "second base")
    publish(desk, "fifth", increment=True)
    desk.ledger.charge_lost_releases("set", 20, "set", Charge(NANO, Fraction(0)), "restored")
    assert "has no base release" in refusal(PublishRequest("set", "sixth", increment=True))


def test_a_base_without_increments_ends_the_generation(desk: Desk) -> None:
    send(desk, "1", Operation.ADD, [1])
    publish(desk, "base")
    desk.publishing.charge(PublishRequest("set", "alone", increments=0))
    with pytest.raises(FailedPrecondition, match="has no base release"):
        publish(desk, "increment", increment=True)


def test_a_publish_may_plan_increments_for_a_set_without(tmp_path: Path) -> None:
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    encoding = LinearParameters.calibrate(PRIVACY, {"columns": 512, "planes": 32})
    described = replace(describe(PRIVACY, encoding, UNIVERSE), increments=0, increment_capacity=0)
    made.ledger.create_set(described, 1000 * NANO, Fraction(0), MAX_SETS)
    send(made, "1", Operation.ADD, [1, 2])
    base = made.publishing.charge(PublishRequest("set", "base", increments=2))
    made.ledger.mark_release(base.set_id, base.sequence, ReleaseState.PUBLISHED)
    send(made, "2", Operation.ADD, [2, 3])
    header, added, _ = shown(made, publish(made, "first", increment=True))
    assert (added, header.planned_increments, header.capacity) == ({3}, 2, 1250)
    made.close()


def test_promises_that_increments_cannot_keep_are_refused(desk: Desk) -> None:
    """δ > 0, and a Bloom filter under replace-one."""
    send(desk, "1", Operation.ADD, [1])
    stored = desk.ledger.get_set("set").description
    lossy = replace(PRIVACY, delta=0.01, calibration=Calibration.W_QUANTILE, adjacency=Adjacency.REPLACE_ONE)
    for number, (privacy, encoding, dimensions, why) in enumerate(
        (
            (lossy, "bloom", {"bits": 64, "hashes": 16}, "delta 0"),
            (replace(PRIVACY, adjacency=Adjacency.REPLACE_ONE), "bloom", {"bits": 4096, "hashes": 1}, "replace-one"),
        )
    ):
        name = f"set-{number}"
        made = find_encoding(encoding).calibrate(privacy, dimensions)
        desk.ledger.create_set(
            replace(stored, name=name, account=name, privacy=privacy, encoding=made), 1000 * NANO, Fraction(1), MAX_SETS
        )
        desk.uploads.add_digests(name, "1", Operation.ADD, EVERY.astype("<u8").tobytes())
        with pytest.raises(InvalidInput, match=why):
            desk.publishing.charge(PublishRequest(name, "base"))
        assert desk.ledger.get_account(name).charges == 0


def test_removals_are_paid_for_with_the_base(tmp_path: Path) -> None:
    """A budget that holds the base alone refuses it."""
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    make_set(made, budget=int(EPSILON + REMOVALS) - 1)
    send(made, "1", Operation.ADD, [1])
    with pytest.raises(BudgetExceeded):
        publish(made, "base")
    made.close()


@pytest.mark.parametrize("change", ["gone", "cut", "changed"])
def test_damaged_released_digests_are_named_and_a_base_goes_on(change: str, desk: Desk, tmp_path: Path) -> None:
    send(desk, "1", Operation.ADD, [1])
    publish(desk, "base")
    generation = desk.ledger.generation(1)
    assert generation is not None
    path = tmp_path / generation.released.name
    data = path.read_bytes()
    path.unlink()
    if change != "gone":
        path.write_bytes(data[:-9] if change == "cut" else bytes([data[0] ^ 1]) + data[1:])
    before = desk.account()
    with pytest.raises(StateCorrupted, match=path.name):
        publish(desk, "increment", increment=True)
    assert desk.account() == before
    assert shown(desk, publish(desk, "next base"))[1] == {1}


def test_released_digests_leave_the_disk_with_their_generation(desk: Desk, tmp_path: Path) -> None:
    """At the next base release, and with the set; a restart between leaves no file that the ledger does not know."""
    send(desk, "1", Operation.ADD, [1])
    files = []
    for request in ("base", "first", "second base"):
        publish(desk, request, increment=request == "first")
        generation = desk.ledger.generation(1)
        assert generation is not None
        files.append(tmp_path / generation.released.name)
        desk.runs.discard()
        assert [path for path in files if path.exists()] == files[-1:]
    desk.ledger.delete_set("set")
    desk.runs.discard()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_compaction_never_writes_over_a_run_in_use(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folded runs are folded into one: a failure before its commit leaves both as they were."""
    set_id = desk.ledger.get_set("set").set_id
    monkeypatch.setattr(runs_module, "MANY_SMALL", 1)
    send(desk, "1", Operation.ADD, list(range(10)))
    assert desk.runs.compact(set_id)
    monkeypatch.setattr(runs_module, "GROWTH", 0)
    send(desk, "2", Operation.REMOVE, [1, 2])
    assert desk.runs.compact(set_id)
    held = desk.held()

    def broken(*_: object) -> bool:
        raise OSError("the power went")

    with monkeypatch.context() as patched:
        patched.setattr(desk.ledger, "replace_items", broken)
        with pytest.raises(OSError, match="the power went"):
            desk.runs.compact(set_id, whole=True)
    assert desk.held() == held
    assert desk.runs.compact(set_id, whole=True)
    assert desk.held() == held


def test_removed_digests_leave_an_expiring_set(tmp_path: Path) -> None:
    """Though its days are never folded together; and no day's elements come back when a later day goes."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    make_set(desk, days=2)
    for day, (operation, numbers) in enumerate(
        [(Operation.ADD, [1, 2, 3]), (Operation.ADD, [4]), (Operation.REMOVE, [2, 4])]
    ):
        send(desk, f"{day}", operation, numbers)
        desk.clock.time_us += DAY_US
    set_id = desk.ledger.get_set("set").set_id
    desk.clock.time_us -= DAY_US
    assert desk.held() == [digest(1), digest(3)]
    assert desk.runs.compact(set_id, whole=True)
    desk.runs.discard()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "runs").iterdir())
    assert [number for number in (1, 2, 3, 4) if np.uint64(digest(number)).tobytes() in stored] == [1, 3]
    desk.clock.time_us += DAY_US
    assert desk.held() == []
    desk.close()
