"""The delivery thread: one trouble keeps it from nothing else, and it comes back by itself."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs

from harness.programs import wait_until
from veilset.errors import StorageFull, StoreMisconfigured, Unavailable
from veilset_server.usecases.delivery import LEAST_REST, LONGEST_PAUSE, DeliveryWorker


class Troubled:
    """Stands for `Delivery`; each part raises what it is told to, and counts."""

    def __init__(self, **troubles: BaseException | None) -> None:
        self.troubles = troubles
        self.stopping = False
        self.calls: Counter[str] = Counter()

    def _do(self, part: str) -> None:
        self.calls[part] += 1
        trouble = self.troubles.get(part)
        if trouble is not None:
            raise trouble

    def deliver_pending(self) -> None:
        self._do("deliver")

    def reconcile(self) -> None:
        self._do("reconcile")

    def keep_house(self) -> None:
        self._do("keep_house")


@pytest.mark.parametrize("part", ["deliver", "reconcile", "keep_house"])
@pytest.mark.parametrize(
    "trouble", [Unavailable("away"), StorageFull("full"), StoreMisconfigured("no"), RuntimeError("?")]
)
def test_each_part_is_tried_whatever_ails_another(part: str, trouble: BaseException) -> None:
    """A release that cannot be delivered keeps nothing from being restored, nor a full disk Redis from being mended."""
    troubled = Troubled(**{part: trouble})
    delivery: Any = troubled
    worker = DeliveryWorker(delivery, 1000.0, troubled.keep_house)
    worker.start()
    try:
        wait_until(lambda: min(troubled.calls[name] for name in ("deliver", "reconcile", "keep_house")) >= 1)
        troubled.troubles = {}
        before = troubled.calls["reconcile"]
        worker.wake()
        wait_until(lambda: troubled.calls["reconcile"] > before)  # the failed pass is made up for, not put off
    finally:
        worker.stop()


def test_a_lasting_refusal_is_not_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is all that helps until somebody acts: the longest pause at once."""
    pauses = []
    wait = threading.Event.wait

    def recorded(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread().name == "delivery":
            pauses.append(timeout)
            return wait(event, 0.01)
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", recorded)
    delivery: Any = Troubled(deliver=StoreMisconfigured("no"))
    worker = DeliveryWorker(delivery, 1000.0, lambda: None)
    worker.start()
    wait_until(lambda: len(pauses) >= 3)
    worker.stop()
    assert set(pauses) == {LONGEST_PAUSE}


def test_a_store_that_was_started_again_is_filled_at_once() -> None:
    """Though no pass is due for long; and one that does not start is asked for again, sooner than anything is due."""
    troubled = Troubled()
    delivery: Any = troubled
    ended = [False, False]
    worker = DeliveryWorker(delivery, 1000.0, troubled.keep_house, lambda: ended.pop() if ended else False)
    worker.start()
    try:
        wait_until(lambda: troubled.calls["deliver"] >= 1 and len(ended) == 1)
        troubled.troubles = {"reconcile": Unavailable("starting")}
        ended.append(True)
        worker.wake()
        wait_until(lambda: troubled.calls["reconcile"] >= 3)  # the first, and then until it succeeds
        troubled.troubles = {}
    finally:
        worker.stop()


def test_a_stopping_service_starts_no_store() -> None:
    """What ended it may have ended the store as well."""
    troubled = Troubled()
    troubled.stopping = True
    delivery: Any = troubled
    ended = [True]
    worker = DeliveryWorker(delivery, 1000.0, troubled.keep_house, ended.pop)
    worker.start()
    wait_until(lambda: troubled.calls["deliver"] >= 1)
    worker.stop()
    assert ended == [True]


def test_what_nobody_foresaw_is_told_with_its_places() -> None:
    """Kind and code lines, so that it can be found; never its text."""
    delivery: Any = Troubled(deliver=RuntimeError("user@example.org"))
    worker = DeliveryWorker(delivery, 1000.0, lambda: None)
    with capture_logs() as logs:
        worker.start()
        wait_until(lambda: bool(logs))
        worker.stop()
    assert logs[0]["event"] == "delivery failed"
    assert any("test_delivery_worker.py" in place for place in logs[0]["places"])
    assert "user@example.org" not in str(logs)


def test_a_long_comparison_is_followed_by_a_longer_rest() -> None:
    """Whatever the period and however often it is woken: the processor is for publishes most of the time."""
    delivery: Any = Troubled()

    def reconcile() -> None:
        time.sleep(0.1)
        delivery._do("reconcile")

    delivery.reconcile = reconcile
    worker = DeliveryWorker(delivery, 0.01, delivery.keep_house)
    begun = time.monotonic()
    worker.start()
    try:
        while time.monotonic() < begun + 1.2:
            worker.wake()
            time.sleep(0.01)
        passes, elapsed = delivery.calls["reconcile"], time.monotonic() - begun
    finally:
        worker.stop()
    assert 1 <= passes <= 1 + elapsed / (0.1 * (1 + LEAST_REST))
