"""The service's process: descriptors, threads, memory, core dumps; its signals; and what the log says of errors.

glibc gives each thread a heap of its own and, once a large block was freed, takes later ones of that size from those heaps.
A service whose threads each handle megabytes now and then would hold the peak of all of them, and its memory would grow for
hours. With few heaps, and blocks from 1 MiB on mapped separately, it holds what is in use (measured under the load of the
soak test: 53 MiB instead of 75).

SIGTERM and SIGINT stop the service, SIGHUP makes it read certificates, keys and tokens again. `starting` comes first and lasts
to the end; inside it `Signals` take over with `begin_serving`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import structlog

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
HEAPS = 2
MAPPED_BYTES = 1 << 20

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others want it. With Python's own 5 ms a short call would wait that long for
each thread that hashes an upload, again and again."""

_PR_SET_DUMPABLE = 4

STOPPING = (signal.SIGTERM, signal.SIGINT)
LAST_WORDS_SECONDS = 10.0
"""How long an interrupted start may take to release what it holds."""

log = structlog.get_logger(__name__)

PLACES = 6
"""How many places in the code the log shows of an error, at most."""


def return_freed_memory() -> bool:
    """Call before there are threads; whether it could be set. Other C libraries than glibc do not have it, nor need it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, HEAPS) and mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES))


def prepare_process() -> None:
    """As many descriptors as the system allows, and threads that take turns quickly."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.setswitchinterval(SWITCH_SECONDS)


def refuse_core_dumps() -> None:
    """For this process and its children: no core file. For this process: no memory to be read by others of its user.

    The limit alone is not enough, as a kernel that pipes cores to a program ignores it. A process that is not dumpable can
    be debugged by root only. Raises OSError where the kernel refuses.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def starting() -> Iterator[None]:
    """The block in which a process becomes a service. Until it serves, SIGTERM and SIGINT end it with exit code 0 at any point: a
    start may take minutes, and the next start continues where this one stopped, as after a kill. SIGHUP is ignored at first,
    since all files are about to be read anyway.
    """
    before = {number: signal.signal(number, _end) for number in STOPPING}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    except SystemExit:
        if structlog.is_configured():
            log.info("stopped while starting")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal.signal asks
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    end_in_time(LAST_WORDS_SECONDS)
    raise SystemExit(0)


class Signals:
    """SIGTERM and SIGINT stop a running service; SIGHUP has it read certificates, keys and the like again.

    A context manager. reloads: called one after the other for each SIGHUP, in the thread that waits in `until_stopped`; one
    that raises is logged, and what it had stays in force.

    Signals arrive as bytes in a pipe, which the interpreter's own handler writes at once. A Python handler would run only
    when the main thread next executes Python code: a signal that came just before that thread blocked was lost.
    """

    def __init__(self) -> None:
        self.reloads: list[Callable[[], object]] = []

    def __enter__(self) -> Signals:
        self._received, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, _leave_to_pipe)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)
        os.close(self._received)

    def begin_serving(self) -> None:
        """From now on SIGTERM and SIGINT end `until_stopped`, and no longer the start."""
        for number in STOPPING:
            signal.signal(number, _leave_to_pipe)

    def until_stopped(self) -> None:
        """Wait for SIGTERM or SIGINT; serve SIGHUP meanwhile."""
        while (number := os.read(self._received, 1)[0]) not in STOPPING:
            if number == signal.SIGHUP:
                self._reload()

    def _reload(self) -> None:
        log.info("reading certificates and keys again")
        for reload in self.reloads:
            try:
                reload()
            except Exception as error:  # noqa: BLE001 - the service keeps what it has
                log.error("could not be read again, the old stays", kind=type(error).__name__)  # noqa: TRY400 - its text may show what the file holds


def _leave_to_pipe(number: int, frame: FrameType | None) -> None:
    """Only a signal that has a Python handler is written to the pipe."""


def end_in_time(seconds: float) -> threading.Timer:
    """End the process with exit code 0 after ``seconds`` if it still runs: a thread may wait for a Redis that hangs.

    Nothing is lost: what was acknowledged is on disk, and the next start continues the rest, as after a kill. A caller that
    ends in time cancels the returned timer.
    """

    def end() -> None:
        log.warning("stopped while a thread was still at work; the next start continues its work")
        sys.stderr.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def error_places(error: BaseException | None) -> list[str]:
    """Where in the code an error came through, innermost last: file and line, no values."""
    trace: TracebackType | None = error.__traceback__ if error is not None else None
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(trace)[-PLACES:]]


class LineLimit:
    """At most ``most`` lines a second. Thread-safe. left_out: called with the number of the others, once the second is over."""

    def __init__(self, most: int, left_out: Callable[[int], object]) -> None:
        self._most = most
        self._left_out = left_out
        self._lock = threading.Lock()
        self._second = 0
        self._lines = 0

    def take(self) -> bool:
        """Whether one more may be written now."""
        second, before = int(time.monotonic()), 0
        with self._lock:
            if second != self._second:
                before = max(0, self._lines - self._most)
                self._second, self._lines = second, 0
            self._lines += 1
            may = self._lines <= self._most
        if before:
            self._left_out(before)
        return may
