"""One call that is being served: what is known of it, the one place where it is answered and ended, and the pool of threads that
serve calls.

gRPC gives each call a thread. No wait of that thread is without end: `OpenCalls` ends a call whose time is over from outside,
and the thread, woken by the end of its call, unwinds with `CallOver`.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc
from grpc_status import rpc_status

from veilset._service.errors import to_status
from veilset.errors import Unavailable, VeilsetError
from veilset_server.principals import EVERYBODY, Principal
from veilset_server.rpc.allowances import PUBLIC_CALLS
from veilset_server.settings import Limits

TICK_SECONDS = 0.05
"""How often the calls that are open are looked at."""

SEND_SECONDS = 30.0
"""How long a caller may take to read an answer."""

CUT_SECONDS = 5.0
"""How long after its end a call may still keep its thread, as its caller reads nothing; then its stream is reset."""

DRAIN_PATIENCE_SECONDS = 0.1
"""How long a stream may wait for its producer once the service stops: a message under way still comes."""


UPLOAD = "AddElements"

REFUSING_THREADS = 64
"""For calls that are only refused, so that callers within their limits find a thread whatever others try."""

RESERVED_DESCRIPTORS = 32
"""For the ledger, releases and Redis: neither connections nor streams take them."""

Result = TypeVar("Result")
_Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


def label_of(method: str) -> str:
    """The name of a method in logs and metrics. Both ways of uploading have one name, since the choice depends on the size."""
    return UPLOAD if method == "AddBatch" else method


class CallOver(Exception):
    """The call has ended, on either side: no answer can be sent, and there is nothing more to do."""


@dataclass(eq=False, slots=True)
class Call:
    """One call. ``label`` is its method's name (`label_of`) if that is known, else "other"; ``metadata`` is what the caller sent.

    streams: whether its caller sends messages without a fixed number. set_name: as the caller gave it, not checked;
    None before the first message. key: whose share of the service it takes. code, reason: how it ended; reason is "" unless an
    error of ours ended it. ended: is called once, when it ends, before its caller is answered.
    """

    service: str
    label: str
    streaming: bool
    metadata: Sequence[tuple[str, str | bytes]]
    context: Any = None
    requests: Any = None
    write: Callable[[bytes | None], None] = lambda _: None
    ended: Callable[[Call], None] = lambda _: None
    streams: bool = False
    set_name: str | None = None
    principal: Principal = EVERYBODY
    key: str = ""
    code: grpc.StatusCode = grpc.StatusCode.OK
    reason: str = ""
    waits_since: float | None = None
    open_calls: OpenCalls | None = None
    ended_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _limits: list[tuple[float, VeilsetError]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or its caller is gone."""
        return self.ended_at is not None or not self.context.is_active()

    @contextmanager
    def within(self, seconds: float, error: VeilsetError) -> Iterator[None]:
        """The block in which the call ends with ``error`` if it takes longer."""
        limit = (time.monotonic() + seconds, error)
        self._limits.append(limit)
        try:
            yield
        finally:
            self._limits.remove(limit)

    def overdue(self, now: float) -> VeilsetError | None:
        """The error of a limit that has passed."""
        return next((error for until, error in tuple(self._limits) if now >= until), None)

    def receive(self, seconds: float) -> bytes | None:
        """The next message as it came, None at the end of them. Raises Unavailable where the service stops, CallOver.

        seconds: how long the caller may be silent; then the call ends.
        """
        if self.streams and self.open_calls is not None and self.open_calls.last_call < time.monotonic():
            raise draining()
        idle = Unavailable(f"call: no message came for {seconds:g} s; resume an upload with its id", kind="IDLE")
        with self.within(seconds, idle):
            self.waits_since = time.monotonic()
            try:
                message: bytes | None = next(self.requests, None)
            except grpc.RpcError as error:
                error.__traceback__ = (
                    None  # gRPC keeps the error with the call, and its frames hold both: a reference cycle
                )
                raise CallOver from None
            finally:
                self.waits_since = None
        if message is None and self.is_over:
            raise CallOver
        return message

    def send(self, message: bytes) -> None:
        """Send one answer. Raises CallOver if the call has ended."""
        if not self.is_over:
            with self.within(
                SEND_SECONDS, Unavailable(f"call: an answer was not read for {SEND_SECONDS:g} s", kind="IDLE")
            ):
                self.write(message)
        if self.is_over:
            raise CallOver

    def end(self, error: VeilsetError | None = None) -> None:
        """End the call, well or with an error; only the first end counts. From any thread, without waiting for the caller."""
        with self._lock:
            if self.ended_at is not None:
                return
            self.ended_at = time.monotonic()
        if not self.context.is_active():
            self.code = grpc.StatusCode.CANCELLED
        elif error is not None:
            status = rpc_status.to_status(to_status(error))
            self.code = status.code
            self.reason = error.reason
            self.context.set_code(status.code)
            self.context.set_details(status.details)
            self.context.set_trailing_metadata(status.trailing_metadata)
        else:
            self.code = self.context.code() or grpc.StatusCode.OK
        self.ended(self)
        self.write(None)


def draining() -> Unavailable:
    """The error that ends a stream when the service stops."""
    return Unavailable("service: shutting down; resume the upload with the same upload id", kind="DRAINING")


_current: ContextVar[Call] = ContextVar("veilset_call")


def current_call() -> Call:
    """The call that this thread serves."""
    return _current.get()


class OpenCalls:
    """The calls that are open; a context manager around the thread that ends those whose time is over. Thread-safe."""

    def __init__(self) -> None:
        self.last_call = float("inf")
        self._draining = False
        self._calls: set[Call] = set()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)

    def __enter__(self) -> OpenCalls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    @contextmanager
    def open(self, call: Call) -> Iterator[None]:
        """The block in which this thread serves ``call``."""
        call.open_calls = self
        token = _current.set(call)
        with self._changed:
            self._calls.add(call)
            if len(self._calls) == 1:
                self._changed.notify_all()
        try:
            yield
        finally:
            _current.reset(token)
            with self._changed:
                self._calls.remove(call)
                if not self._calls:
                    self._changed.notify_all()

    def drain(self, seconds: float) -> None:
        """From now on a stream is asked to come back as soon as it waits for its producer; one whose producer keeps sending may
        continue to its end, for ``seconds`` at most. Either way what it acknowledged stays, and it can be resumed."""
        self.last_call = time.monotonic() + seconds
        self._draining = True

    def closed(self, seconds: float) -> bool:
        """Wait until no call holds anything, for ``seconds`` at most; gRPC itself does not wait for cancelled calls."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls, seconds)

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._calls)
                if self._stopped:
                    return
                calls = tuple(self._calls)
            now = time.monotonic()
            for call in calls:
                error = call.overdue(now)
                since = call.waits_since
                if error is None and self._draining and call.streams and since is not None:
                    error = draining() if now - since >= DRAIN_PATIENCE_SECONDS else None
                if error is not None:
                    call.end(error)
                if call.ended_at is not None and now - call.ended_at > CUT_SECONDS:
                    call.context.cancel()
            time.sleep(TICK_SECONDS)


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
