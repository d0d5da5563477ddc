"""The threads that serve calls, and what else there is only so much of: descriptors."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from veilset_server.limits import Limits
from veilset_server.rpc.allowances import PUBLIC_CALLS

REFUSING_THREADS = 64
"""For calls that are only refused, so that callers within their limits find a thread whatever others try."""

RESERVED_DESCRIPTORS = 32
"""For the ledger, which opens a journal for each commit, for releases and Redis: neither connections nor streams take them."""

Result = TypeVar("Result")
_Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class CallPool(Executor):
    """At most ``most`` threads, made when they are needed and kept; ``reserve`` of them from the start on.

    gRPC submits each call from its only thread, which must neither wait nor fail: where the system gives no more threads the
    call waits for one of those that there are. `short` is true then, until one can be made again.
    """

    def __init__(self, most: int, reserve: int) -> None:
        self.most = most
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0  # or about to be: what is queued counts
        self.short = False
        for _ in range(min(reserve, most)):
            self._add_thread()

    def __len__(self) -> int:
        return self._threads

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **_: Any) -> Future[Result]:
        """Run ``work`` with positional arguments in a thread."""
        future: Future[Result] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > self._threads and self._threads < self.most:
                try:
                    self._add_thread()
                    self.short = False
                except RuntimeError:
                    self.short = True
        self._queue.put((future, work, arguments))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as the base class has it
        """Let the threads go that have nothing to do, and the others once they are done; waits for none."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _add_thread(self) -> None:
        threading.Thread(target=self._run, name=f"call-{self._threads}", daemon=True).start()
        self._threads += 1

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work, arguments = item
            try:
                future.set_result(work(*arguments))
            except BaseException as error:  # noqa: BLE001 - it is the future's
                future.set_exception(error)
            finally:
                with self._lock:
                    self._busy -= 1
            del item, future, work, arguments  # a thread that waits holds nothing of the call before


def call_pool(limits: Limits) -> CallPool:
    """One with a thread for each call that these limits let in."""
    most = limits.max_calls + limits.reserved_calls + PUBLIC_CALLS + REFUSING_THREADS
    return CallPool(most, REFUSING_THREADS)


def reserved_descriptors() -> int:
    """`RESERVED_DESCRIPTORS`, or less where there are few at all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(RESERVED_DESCRIPTORS, limit // 8)


def connections() -> int:
    """How many may be open: half of the descriptors that are left now beside the reserve; the other half is for uploads."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = limit - len(os.listdir("/proc/self/fd")) - reserved_descriptors()  # noqa: PTH208 - counted, not read
    return max(8, left // 2)
