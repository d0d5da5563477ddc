"""Opening an upload reads its spool through, which for a long one takes a while: nobody else waits, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from publish_examples import MemoryAnchor, MemoryStore, OneKey
from storage_examples import StoppedClock, add_set, new_ledger, new_runs

from harness.patience import SECONDS
from veilset_server.ports import ReleaseStore
from veilset_server.state.runs import Runs
from veilset_server.usecases.abandoned_uploads import AbandonedUploads, IdleFile
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.upload_session import UploadSession
from veilset_server.usecases.uploads import Uploads


class Turnstile:
    """Holds a method up, once it is armed, until it is let go."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.reached, self.open = threading.Event(), threading.Event()
        self.armed = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.armed:
            self.armed = False
            self.reached.set()
            assert self.open.wait(SECONDS)
        return self._method(*arguments, **named)


class Place:
    """A state folder with two sets, its uploads, a clock for what is abandoned, and a turnstile before each spool."""

    def __init__(self, folder: Path) -> None:
        self.seconds = 0.0
        self.ledger = new_ledger(folder)
        runs = new_runs(folder, self.ledger)
        for name in ("one", "two"):
            add_set(self.ledger, name)
        abandoned = AbandonedUploads(self.ledger, runs, IdleFile(folder), 100.0, lambda: self.seconds)
        guard = RollbackGuard(self.ledger, cast(ReleaseStore, MemoryStore(folder)), MemoryAnchor(), OneKey())
        self.uploads = Uploads(self.ledger, runs, Compactor(self.ledger, runs), guard, abandoned, StoppedClock())

    def open(self, set_name: str) -> UploadSession:
        """Open an upload under the id u."""
        return self.uploads.open(set_name, "u")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Made anew for each test."""
    made = Place(tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture
def turnstile(monkeypatch: pytest.MonkeyPatch) -> Turnstile:
    """What holds a spool up."""
    made = Turnstile(Runs.open_spool)
    monkeypatch.setattr(Runs, "open_spool", lambda *arguments, **named: made(*arguments, **named))
    return made


def test_other_sets_do_not_wait_for_a_long_spool(place: Place, turnstile: Turnstile) -> None:
    """They open, add and finish meanwhile; then the slow one goes on."""
    turnstile.armed = True
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(place.open, "one")
        assert turnstile.reached.wait(SECONDS)
        try:
            quick = place.uploads.open("two", "u")
            quick.add_elements(1, [b"a@example.com", b"b@example.com"])
            assert place.uploads.finish(quick, 2, b"") == 2
        finally:
            turnstile.open.set()
        session = slow.result(SECONDS)
    assert not session.finished
    place.uploads.close(session)


def test_an_upload_that_is_dropped_while_it_is_opened_can_be_finished(place: Place, turnstile: Turnstile) -> None:
    """It had been left alone for too long just when its producer came back: it starts from nothing, and says so."""
    place.uploads.close(place.open("one"))
    place.uploads.drop_abandoned()
    place.seconds = 1000.0
    turnstile.armed = True
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(place.open, "one")
        assert turnstile.reached.wait(SECONDS)
        try:
            assert place.uploads.drop_abandoned() == 1
        finally:
            turnstile.open.set()
        session = slow.result(SECONDS)
    assert not session.finished
    assert [upload.set_id for upload in place.ledger.all_open_uploads()] == [session.stored.set_id]
    assert place.uploads.finish(session, 0, b"") == 0
    assert place.open("one").finished
