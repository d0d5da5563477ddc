"""What a set holds after adds, removals and replacements, however they are split, interleaved, folded and interrupted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from publish_examples import Desk, MemoryAnchor, MemoryStore, restarted

from veilset.core.params import Operation
from veilset.errors import (
    FailedPrecondition,
    InvalidInput,
    StateCorrupted,
    StateRolledBack,
    StorageFull,
    UploadMismatch,
)
from veilset_server.records import StoredRun, UploadPart
from veilset_server.state import runs as runs_module
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.runs import MANY_RUNS, MAX_RUNS


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    made.create()
    yield made
    made.close()


def packed(digests: list[int]) -> bytes:
    return np.array(digests, dtype="<u8").tobytes()


def send(desk: Desk, upload_id: str, operation: Operation, digests: list[int], part: int = 0, split: int = 3) -> bytes:
    """A whole stream, or a sealed part; returns its checksum."""
    checksum = xxhash.xxh3_128_digest(packed(digests))
    session = desk.uploads.open("set", upload_id, operation, part)
    for number, start in enumerate(range(0, len(digests), split), start=1):
        session.add_digests(number, packed(digests[start : start + split]))
    desk.uploads.finish(session, len(digests), checksum)
    return checksum


class Content(RuleBasedStateMachine):
    """A desk beside a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.model: set[int] = set()
        self.number = 0

    @initialize(folder=st.builds(lambda: Path(FOLDERS[0])))
    def make(self, folder: Path) -> None:
        self.folder = folder / f"{len(list(folder.iterdir()))}"
        self.folder.mkdir()
        self.desk = Desk(self.folder, MemoryAnchor(), MemoryStore(self.folder / LEDGER_NAME))
        self.desk.create()

    def finished(self, operation: Operation, digests: list[int]) -> None:
        match operation:
            case Operation.ADD:
                self.model |= set(digests)
            case Operation.REMOVE:
                self.model -= set(digests)
            case Operation.REPLACE:
                self.model = set(digests)

    @rule(
        operation=st.sampled_from(Operation), digests=st.lists(st.integers(0, 30), max_size=12), split=st.integers(1, 5)
    )
    def stream(self, operation: Operation, digests: list[int], split: int) -> None:
        self.number += 1
        send(self.desk, f"{self.number}", operation, digests, split=split)
        self.finished(operation, digests)

    @rule(operation=st.sampled_from(Operation), digests=st.lists(st.integers(0, 30), min_size=1, max_size=5))
    def small(self, operation: Operation, digests: list[int]) -> None:
        self.number += 1
        for _ in range(2):  # the second time nothing is done
            self.desk.uploads.add_digests("set", f"{self.number}", operation, packed(digests))
        self.finished(operation, digests)

    @rule(
        operation=st.sampled_from(Operation),
        parts=st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=3),
    )
    def in_parts(self, operation: Operation, parts: list[list[int]]) -> None:
        self.number += 1
        listed = [
            UploadPart(part, len(digests), send(self.desk, f"{self.number}", operation, digests, part))
            for part, digests in enumerate(parts, start=1)
        ]
        session = self.desk.uploads.open("set", f"{self.number}", operation)
        self.desk.uploads.finish(session, sum(map(len, parts)), b"", listed)
        self.finished(operation, [digest for digests in parts for digest in digests])

    @rule(operation=st.sampled_from(Operation), digests=st.lists(st.integers(0, 30), min_size=1, max_size=6))
    def unfinished(self, operation: Operation, digests: list[int]) -> None:
        self.number += 1
        session = self.desk.uploads.open("set", f"{self.number}", operation)
        session.add_digests(1, packed(digests))
        self.desk.uploads.close(session)

    @rule(whole=st.booleans())
    def compact(self, whole: bool) -> None:
        set_id = self.desk.ledger.get_set("set").set_id
        self.desk.runs.compact(set_id, whole=whole)
        self.desk.runs.discard()

    @rule()
    def restart(self) -> None:
        self.desk = restarted(self.desk, self.folder)
        assert not self.desk.aside

    @invariant()
    def same(self) -> None:
        if hasattr(self, "desk"):
            assert self.desk.held() == sorted(self.model)

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.close()


FOLDERS: list[str] = []


def test_any_sequence_of_uploads_equals_a_plain_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_content(tmp_path, monkeypatch, 100)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_many_sequences_of_uploads_equal_a_plain_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_content(tmp_path, monkeypatch, 1000)


def run_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    """With folding due after every other upload, and ranges of a few digests."""
    FOLDERS[:] = [str(tmp_path)]
    monkeypatch.setattr(runs_module, "MANY_RUNS", 2)
    for module in ("run_file", "runs", "spool"):
        monkeypatch.setattr(f"veilset_server.state.{module}.LIMIT", 8)
    Content.TestCase.settings = settings(max_examples=examples, stateful_step_count=10, deadline=None)
    case = Content.TestCase()
    case.runTest()


def test_finish_commits_parts_together_or_not_at_all(desk: Desk) -> None:
    checksums = {part: send(desk, "u", Operation.ADD, [part, part + 10], part) for part in (1, 2)}
    right = [UploadPart(part, 2, checksum) for part, checksum in checksums.items()]
    wrong = [
        (right[:1], 2, "part 2 is sealed"),
        ([*right, UploadPart(3, 0, bytes(16))], 4, "part 3 is not sealed"),
        ([right[0], UploadPart(2, 1, checksums[2])], 3, "part 2 holds other elements"),
        ([right[0], UploadPart(2, 2, checksums[1])], 4, "part 2 holds other elements"),
        (right, 5, "finish says 5 elements"),
    ]
    for parts, count, message in wrong:
        session = desk.uploads.open("set", "u")
        with pytest.raises(UploadMismatch, match=message) as caught:
            desk.uploads.finish(session, count, b"", parts)
        assert caught.value.details["field"] in ("parts", "count")
        assert desk.held() == []
        desk.uploads.close(session)
    desk.uploads.finish(desk.uploads.open("set", "u"), 4, b"", right)
    assert desk.held() == [1, 2, 11, 12]
    assert desk.uploads.open("set", "u", part=2).finished


def test_parts_count_as_one_open_upload(desk: Desk) -> None:
    for part in range(20):
        desk.uploads.close(desk.uploads.open("set", "u", part=part))
    quota = desk.uploads._limits.max_open_uploads_per_principal
    for number in range(quota - 1):
        desk.ledger.open_upload(1, f"{number}", 0, Operation.ADD)
    desk.uploads.close(desk.uploads.open("set", "u", part=50))


def test_an_id_keeps_its_operation(desk: Desk) -> None:
    desk.uploads.close(desk.uploads.open("set", "open", Operation.REMOVE))
    send(desk, "done", Operation.ADD, [1])
    for upload_id, operation in (("open", Operation.ADD), ("done", Operation.REMOVE)):
        with pytest.raises(FailedPrecondition) as caught:
            desk.uploads.open("set", upload_id, operation)
        assert caught.value.details["field"] == "operation"
        with pytest.raises(FailedPrecondition):
            desk.uploads.add_digests("set", upload_id, operation, packed([1]))


@pytest.mark.parametrize(("content", "field"), [(b"", "digests"), (bytes(7), "digests"), (bytes(8 * 4097), "digests")])
def test_bad_small_uploads_are_refused_by_field(desk: Desk, content: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        desk.uploads.add_digests("set", "u", Operation.ADD, content)
    assert caught.value.details["field"] == field
    assert not desk.runs.holds_any(1)


def test_many_runs_are_folded_and_their_files_go(desk: Desk, tmp_path: Path) -> None:
    for number in range(MANY_RUNS):
        send(desk, f"{number}", Operation.ADD, [number])
    assert desk.runs.compact(1)
    desk.runs.discard()
    assert [run.operation for run in desk.ledger.items(1) if isinstance(run, StoredRun)] == [None]
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert not list((tmp_path / "spools").iterdir())
    assert desk.held() == list(range(MANY_RUNS))


def test_finish_waits_for_a_compaction_only_at_64_runs(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    compacted: list[int] = []
    real = desk.runs.compact

    def compact(set_id: int) -> bool:
        compacted.append(set_id)
        return real(set_id)

    monkeypatch.setattr(desk.runs, "compact", compact)
    for number in range(MAX_RUNS):
        send(desk, f"{number}", Operation.ADD, [number])
        assert not compacted
    send(desk, "last", Operation.ADD, [99])
    assert compacted == [1]
    assert len(desk.held()) == MAX_RUNS + 1


@pytest.mark.parametrize("operation", [Operation.REMOVE, Operation.REPLACE])
def test_removed_digests_leave_the_disk_after_a_publish(desk: Desk, tmp_path: Path, operation: Operation) -> None:
    """And the checksums of uploads: one of a single element confirms a guess of that element. Ids are still known."""
    removed = 0x1122334455667788
    traces = [send(desk, "a", Operation.ADD, [5, removed]), send(desk, "b", Operation.ADD, [removed])]
    send(desk, "r", operation, [removed] if operation is Operation.REMOVE else [5])
    desk.publish("p")
    desk.compactor.start()
    for _ in range(500):
        if len(desk.ledger.items(1)) == 1 and not desk.ledger.leftovers():
            break
        threading.Event().wait(0.02)
    desk.compactor.stop()
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert packed([5]) in everything
    assert packed([removed]) not in everything
    assert not any(trace in everything for trace in traces)
    assert desk.uploads.open("set", "b", Operation.ADD).finished
    assert desk.held() == [5]


def test_a_removal_missing_from_a_restored_folder_stops_publishing(tmp_path: Path) -> None:
    """Until an operator confirms the loss."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create(budget=3)
    send(desk, "a", Operation.ADD, [1, 2])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    desk.uploads.add_digests("set", "r", Operation.REMOVE, packed([1]))
    desk.close()
    for path, content in before.items():
        path.write_bytes(content)
    desk = Desk(tmp_path, desk.anchor, desk.store)
    with pytest.raises(StateRolledBack, match="Removals or replacements"):
        desk.publish("p")
    assert desk.account().spent_nano_epsilon == 0
    desk.guard.confirm("set", 0.0, 0.0, "restored")
    desk.publish("p")
    assert desk.ledger.operations("set") == 1
    desk.close()


def test_a_removal_is_not_acknowledged_without_the_anchor(desk: Desk) -> None:
    desk.uploads.add_digests("set", "a", Operation.ADD, packed([1]))
    desk.anchor.room = 0
    for _ in range(2):
        with pytest.raises(StorageFull):
            desk.uploads.add_digests("set", "r", Operation.REMOVE, packed([1]))
    desk.anchor.room = None
    desk.uploads.add_digests("set", "r", Operation.REMOVE, packed([1]))
    assert desk.anchor.operations == {"set": 1}


def test_operations_go_on_counting_under_a_name(desk: Desk) -> None:
    """A set that is made again is not taken for one that was rolled back."""
    send(desk, "r", Operation.REMOVE, [1])
    desk.ledger.delete_set("set")
    desk.create()
    send(desk, "r", Operation.REPLACE, [1])
    assert desk.anchor.operations == {"set": 2}
    desk.publish("p")


def test_unknown_runs_are_set_aside_and_never_deleted(desk: Desk, tmp_path: Path) -> None:
    send(desk, "a", Operation.ADD, [1])
    unknown = {"runs/7-3.run": b"one", "spools/9-1.spool": b"two"}
    for name, content in unknown.items():
        (tmp_path / name).write_bytes(content)
    for round_ in range(2):  # a second file of the same name has a place too
        fresh = restarted(desk, tmp_path)
        assert sorted(fresh.aside) == (sorted(unknown) if round_ == 0 else ["runs/7-3.run"])
        (tmp_path / "runs/7-3.run").write_bytes(b"three")
        desk = fresh
    kept = sorted(path.read_bytes() for path in (tmp_path / "quarantine").iterdir())
    assert kept == [b"one", b"three", b"two"]
    assert desk.held() == [1]
    desk.close()


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("change", ["flip", "cut", "gone"])
def test_a_damaged_run_is_named_and_nothing_charged(desk: Desk, tmp_path: Path, folded: bool, change: str) -> None:
    for number in range(MANY_RUNS if folded else 1):
        send(desk, f"{number}", Operation.ADD, [number, number + 100])
    if folded:
        desk.runs.compact(1)
        desk.runs.discard()
    (path,) = (*(tmp_path / "runs").iterdir(), *(tmp_path / "spools").iterdir())
    content = bytearray(path.read_bytes())
    content[-1 if not folded else 3] ^= 4
    match change:
        case "flip":
            path.write_bytes(content)
        case "cut":
            path.write_bytes(content[:-9])
        case "gone":
            path.unlink()
    with pytest.raises(StateCorrupted) as caught:
        desk.publish("p")
    assert caught.value.details["file"] == f"{path.parent.name}/{path.name}"
    assert desk.account().spent_nano_epsilon == 0
    assert not list((tmp_path / "artefacts").iterdir())
    if change != "flip":
        with pytest.raises(StateCorrupted):
            desk.runs.check(1)
    send(desk, "new", Operation.REPLACE, [5])  # the way out that the message names
    desk.publish("p")
    assert desk.held() == [5]


def test_files_in_use_by_a_publish_stay_until_its_end(desk: Desk, tmp_path: Path) -> None:
    send(desk, "a", Operation.ADD, [1, 2])
    with desk.runs.sorted_chunks(1) as chunks:
        send(desk, "b", Operation.REPLACE, [3])
        assert desk.runs.discard() == 0
        assert [int(digest) for chunk in chunks for digest in chunk] == [1, 2]
    assert desk.runs.discard() == 1
    assert desk.held() == [3]


def test_an_interrupted_compaction_leaves_the_old_runs(desk: Desk, tmp_path: Path) -> None:
    for number in range(MANY_RUNS):
        send(desk, f"{number}", Operation.ADD, [number])
    with pytest.raises(runs_module.Stopped):
        desk.runs.compact(1, stopping=lambda: True)
    assert not list((tmp_path / "runs").iterdir())
    assert desk.held() == list(range(MANY_RUNS))
    assert not restarted(desk, tmp_path).aside
