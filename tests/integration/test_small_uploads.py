"""Small uploads: calls that arrive together are one commit, each with an answer of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore

from veilset.core.params import Operation
from veilset.errors import AlreadyExists, FailedPrecondition, StorageFull, Unavailable
from veilset_server.state.ledger.file import LEDGER_NAME


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    made.create()
    yield made
    made.close()


def packed(*digests: int) -> bytes:
    return np.array(digests, dtype="<u8").tobytes()


def in_threads(acts: Sequence[Callable[[], object]]) -> list[BaseException]:
    """Do them at the same time; returns what they raised."""
    raised: list[BaseException] = []

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            raised.append(error)

    threads = [threading.Thread(target=attempt, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_calls_that_wait_are_committed_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    commit, first, go_on = desk.ledger.add_batches, threading.Event(), threading.Event()

    def slow(batches: Any) -> Any:
        groups.append(len(batches))
        first.set()
        assert go_on.wait(30)
        return commit(batches)

    monkeypatch.setattr(desk.ledger, "add_batches", slow)
    acts = [lambda n=n: desk.uploads.add_digests("set", f"{n}", Operation.ADD, packed(n)) for n in range(21)]
    leader = threading.Thread(target=acts.pop())
    leader.start()
    assert first.wait(30)
    waiting = threading.Timer(0.5, go_on.set)
    waiting.start()
    assert in_threads(acts) == []
    leader.join()
    assert groups == [1, 20]
    assert desk.held() == list(range(21))


def test_one_that_is_refused_spoils_no_other(desk: Desk) -> None:
    desk.uploads.close(desk.uploads.open("set", "taken"))
    acts = [
        lambda n=n: desk.uploads.add_digests("set", f"{n}" if n % 4 else "taken", Operation.ADD, packed(n))
        for n in range(40)
    ]
    raised = in_threads(acts)
    assert len(raised) == 10
    assert all(isinstance(error, FailedPrecondition) for error in raised)
    assert desk.held() == [n for n in range(40) if n % 4]


@pytest.mark.parametrize("failure", [StorageFull("ledger.db: full"), ZeroDivisionError()])
def test_a_failed_commit_is_told_to_all_of_its_group(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """And the next ones go on."""
    commit = desk.ledger.add_batches

    def fail(batches: Any) -> Any:
        raise failure

    monkeypatch.setattr(desk.ledger, "add_batches", fail)
    acts = [lambda n=n: desk.uploads.add_digests("set", f"{n}", Operation.ADD, packed(n)) for n in range(8)]
    raised = in_threads(acts)
    assert len(raised) == 8
    assert all(isinstance(error, (StorageFull, Unavailable, ZeroDivisionError)) for error in raised)
    monkeypatch.setattr(desk.ledger, "add_batches", commit)
    assert in_threads(acts) == []
    assert desk.held() == list(range(8))


def test_an_id_is_done_once_and_never_with_other_elements(desk: Desk) -> None:
    for _ in range(3):
        assert desk.uploads.add_digests("set", "u", Operation.REMOVE, packed(1, 2)) == 2
    for digests in (packed(1), packed(2, 1)):
        with pytest.raises(AlreadyExists) as refused:
            desk.uploads.add_digests("set", "u", Operation.REMOVE, digests)
        assert refused.value.details["field"] == "upload_id"
    session = desk.uploads.open("set", "u", Operation.REMOVE)
    assert session.finished
    with pytest.raises(AlreadyExists):
        desk.uploads.finish(session, 3, b"")
    assert desk.uploads.finish(session, 2, b"") == 2
    assert desk.ledger.operations("set") == 1


def test_many_tiny_uploads_leave_few_runs_and_files(desk: Desk, tmp_path: Path) -> None:
    """5,000 from eight producers, with the compaction of the service beside them."""
    desk.compactor.start()

    def produce(producer: int) -> None:
        for n in range(625):
            desk.uploads.add_digests("set", f"{producer}/{n}", Operation.ADD, packed(producer * 625 + n))

    raised = in_threads([partial(produce, producer) for producer in range(8)])
    desk.compactor.stop()
    assert raised == []
    assert desk.held() == list(range(5000))
    runs, small, _ = desk.ledger.count_items(1)
    assert runs <= 12
    assert small < 3000
    assert len(list((tmp_path / "runs").iterdir())) <= 14
