"""A publish that waits for Redis is answered when the service stops: PENDING, which the next start delivers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from veilset_server.adapters.ledger.file import LEDGER_NAME
from veilset_server.records import ReleaseState

FOREVER = 1e6


@pytest.mark.parametrize("before", [True, False], ids=["it waits already", "it comes to wait"])
def test_nobody_waits_in_a_service_that_stops(before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is charged stays charged, and pending."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create()
    desk.upload("one", names(100))
    release = desk.publish("r")
    looked = threading.Event()
    get_release = desk.ledger.get_release

    def watched(set_name: str, sequence: int) -> object:
        looked.set()
        return get_release(set_name, sequence)

    monkeypatch.setattr(desk.ledger, "get_release", watched)
    with ThreadPoolExecutor(1) as pool:
        if not before:
            desk.delivery.stop_waiting()
        waiting = pool.submit(desk.delivery.wait, "set", release.sequence, FOREVER)
        if before:
            looked.wait()
            assert not waiting.done()
            desk.delivery.stop_waiting()
        assert waiting.result().state is ReleaseState.PENDING
    assert desk.account().charges == 1
    desk.close()
