"""What of a publish is timed: nothing that takes longer where uploads hold more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from publish_examples import Desk, MemoryAnchor, MemoryStore, names

from veilset_server.metrics import measured
from veilset_server.metrics.instruments import Instruments
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.publishing import Publishing

STEP = 1000.0


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def slow(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same method, taking `STEP` seconds."""

        def taking_long(*arguments: Any) -> Any:
            self.now += STEP
            return method(*arguments)

        return taking_long


@pytest.mark.parametrize(
    ("kind", "name", "timed"),
    [(Merging, "complete", False), (Publishing, "_ones", False), (Publishing, "_commit", True)],
    ids=["wait for a merge", "proof of min_size", "charge"],
)
def test_the_wait_for_a_merge_is_not_measured(
    kind: type, name: str, timed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the pass over the vector that a promised size needs. What comes after both is."""
    clock, registry = Clock(), CollectorRegistry()
    monkeypatch.setattr("publish_examples.Publishing", partial(measured.MeasuredPublishing, Instruments(registry)))
    monkeypatch.setattr(measured, "time", SimpleNamespace(monotonic=lambda: clock.now))
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create(min_size=50)
    desk.upload("one", names(100))
    find = desk.ledger.get_set_by_id
    monkeypatch.setattr(desk.ledger, "get_set_by_id", lambda set_id: _unproved(find(set_id)))
    monkeypatch.setattr(kind, name, clock.slow(getattr(kind, name)))
    desk.publish("r")
    desk.close()
    assert clock.now >= STEP
    assert registry.get_sample_value("veilset_publish_duration_seconds_count") == 1
    assert registry.get_sample_value("veilset_publish_duration_seconds_sum") == (STEP if timed else 0)


def _unproved(stored: Any) -> Any:
    return replace(stored, proven_size=0)
