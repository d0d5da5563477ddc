"""The threads that serve calls: made when needed, and work waits where the system gives no more."""

from __future__ import annotations

import threading

import pytest

from veilset_server.rpc.call import CallPool

MOST, RESERVE = 8, 2


def test_threads_are_made_when_needed_and_kept() -> None:
    """No more than the work at hand, and never beyond the limit."""
    pool, go = CallPool(MOST, RESERVE), threading.Event()
    assert len(pool) == RESERVE
    for number in range(50):
        assert pool.submit(lambda value: value, number).result(60) == number
    assert len(pool) <= RESERVE + 1
    waiting = [pool.submit(go.wait, 60) for _ in range(3 * MOST)]
    assert len(pool) == MOST
    go.set()
    assert all(each.result(60) for each in waiting)
    pool.shutdown()


def test_a_failure_is_the_futures() -> None:
    """And the thread goes on."""
    pool = CallPool(1, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(60)
    assert pool.submit(len, "abc").result(60) == 3
    pool.shutdown()


def shortages(pool: CallPool) -> int:
    """1 while no thread can be made."""
    return int(pool.short)


def test_work_waits_where_no_thread_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitting must not fail: gRPC's only thread would end by it."""
    pool, go = CallPool(MOST, RESERVE), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        waiting = [pool.submit(go.wait, 60) for _ in range(MOST)]
        assert shortages(pool) == 1
        assert len(pool) == RESERVE
    more = pool.submit(go.wait, 60)
    assert shortages(pool) == 0
    go.set()
    assert all(each.result(60) for each in (*waiting, more))
    pool.shutdown()
