"""Opening an upload reads its spool through, which for a long one takes a while: nobody else waits, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from storage_examples import add_set, new_files, new_ledger

from harness.patience import SECONDS
from veilset_server.state.idle_file import IdleFile
from veilset_server.state.vector_files import VectorFiles
from veilset_server.usecases.abandoned_uploads import AbandonedUploads
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.upload_session import UploadSession


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
    """A state folder with two sets, its ingest, a clock for what is abandoned, and a turnstile before each spool."""

    def __init__(self, folder: Path) -> None:
        self.seconds = 0.0
        self.ledger, self.files = new_ledger(folder), new_files(folder)
        for name in ("one", "two"):
            stored = add_set(self.ledger, name)
            self.files.create_vector(stored.set_id, stored.description.filter.vector_bytes)
        locks = KeyedLocks()
        abandoned = AbandonedUploads(self.ledger, self.files, IdleFile(folder), 100.0, lambda: self.seconds)
        self.ingest = Ingest(self.ledger, self.files, locks, Merging(self.ledger, self.files, locks), abandoned)

    def open(self, set_name: str) -> UploadSession[Any]:
        """Open an upload under the id u."""
        return self.ingest.open(set_name, "u")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Made anew for each test."""
    made = Place(tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture
def turnstile(monkeypatch: pytest.MonkeyPatch) -> Turnstile:
    """What holds a spool up."""
    made = Turnstile(VectorFiles.open_spool)
    monkeypatch.setattr(VectorFiles, "open_spool", lambda *arguments, **named: made(*arguments, **named))
    return made


def test_other_sets_do_not_wait_for_a_long_spool(place: Place, turnstile: Turnstile) -> None:
    """They open, add and finish meanwhile; then the slow one goes on."""
    turnstile.armed = True
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(place.open, "one")
        assert turnstile.reached.wait(SECONDS)
        try:
            quick = place.ingest.open("two", "u")
            quick.add_elements(1, [b"a@example.com", b"b@example.com"])
            assert place.ingest.finish(quick, 2, b"") == 2
        finally:
            turnstile.open.set()
        session = slow.result(SECONDS)
    assert not session.finished
    place.ingest.close(session)


def test_an_upload_that_is_dropped_while_it_is_opened_can_be_finished(place: Place, turnstile: Turnstile) -> None:
    """It had been left alone for too long just when its producer came back: it starts from nothing, and says so."""
    place.ingest.close(place.open("one"))
    place.ingest.drop_abandoned()
    place.seconds = 1000.0
    turnstile.armed = True
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(place.open, "one")
        assert turnstile.reached.wait(SECONDS)
        try:
            assert place.ingest.drop_abandoned() == 1
        finally:
            turnstile.open.set()
        session = slow.result(SECONDS)
    assert not session.finished
    assert [upload.set_id for upload in place.ledger.all_open_uploads()] == [session.stored.set_id]
    assert place.ingest.finish(session, 0, b"") == 0
    assert place.open("one").finished
