"""Mixed load on one service: producers, a publisher, readers, a follower, questions; with pauses in which nothing moves."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
from stricken import Stricken

import veilset
from harness.metrics import scrape
from veilset.errors import VeilsetError

ERRORS = (VeilsetError, grpc.RpcError, OSError)
GENERATION_SECONDS = 60.0
PAUSE_SECONDS = 60.0
PATIENCE_SECONDS = 120.0
"""How long one upload or publish is tried: over a restart on a busy machine and more."""
RELEASES = 100_000


class Load:
    """Threads that work on a `Stricken` service until told to stop. Sets come and go: the newest two are worked on.

    steady: the service is never ended, so nothing but a publish may fail; else errors are only counted. What went wrong beyond
    that is in ``failures``; ``done`` counts what was done; ``answer_seconds`` is how long a question took, connecting included.
    """

    def __init__(self, service: Stricken, name: str, *, steady: bool) -> None:
        self.service = service
        self.name = name
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.answer_seconds: list[float] = []
        self._steady = steady
        self._stop = threading.Event()
        self._go = threading.Event()
        self._counting = threading.Condition()
        self._busy = 0
        self._generations = itertools.count(1)
        self._numbers = itertools.count(1)
        self._sets: list[str] = []
        self._next_generation = 0.0
        self._threads: list[threading.Thread] = []

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Start all threads; at the end stop them."""
        self._renew_sets()
        jobs = [
            self._produce,
            self._produce,
            self._produce,
            self._produce_by_library,
            self._publish,
            self._read,
            self._ask,
        ]
        self._threads = [threading.Thread(target=self._repeat, args=(job,), name=f"{self.name} load") for job in jobs]
        for thread in self._threads:
            thread.start()
        self._go.set()
        try:
            yield self
        finally:
            self._stop.set()
            self._go.set()
            for thread in self._threads:
                thread.join(PAUSE_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is under way inside the block."""
        self._go.clear()
        with self._counting:
            assert self._counting.wait_for(lambda: self._busy == 0, PAUSE_SECONDS), (
                f"{self.name}: a call never came back"
            )
        try:
            yield
        finally:
            self._go.set()

    def _repeat(self, job: Callable[[], float]) -> None:
        while not self._stop.is_set():
            self._go.wait()
            with self._counting:
                if not self._go.is_set():
                    continue
                self._busy += 1
            rest = 1.0
            try:
                rest = job()
            except AssertionError as error:
                self.failures.append(f"{self.name}: {error}")
            except ERRORS as error:
                self.done[f"errors: {type(error).__name__}"] += 1
                if self._steady and job != self._publish:  # publishing needs Redis, nothing else does
                    self.failures.append(f"{self.name}: {type(error).__name__}: {error}")
            except BaseException as error:  # noqa: BLE001 - a thread that dies in silence would be a load that is none
                self.failures.append(f"{self.name}: {type(error).__name__}: {error}")
            finally:
                with self._counting:
                    self._busy -= 1
                    self._counting.notify_all()
            self._stop.wait(rest)

    # What the threads do; each returns how long to rest.

    def _produce(self) -> float:
        """One upload, tried until it is finished, as a producer would."""
        set_name, upload_id = random.choice(self._sets), f"u{next(self._numbers)}"  # noqa: S311 - which set is no secret
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                self.service.upload(set_name, upload_id)
            except ERRORS as error:
                self.done[f"errors: upload {type(error).__name__}"] += 1
                if self._steady and set_name in self._sets:
                    raise AssertionError(f"an upload failed in a service that was not ended: {error!r}") from error
                if set_name not in self._sets or self._stop.is_set() or not self._go.is_set():
                    return 0.0
                time.sleep(0.2)
            else:
                self.done["uploads"] += 1
                return 0.2
        raise AssertionError(f"upload {upload_id} could not be finished in {PATIENCE_SECONDS:g} s")

    def _produce_by_library(self) -> float:
        """A larger upload through the library, hashed here, which goes on by itself over restarts."""
        set_name, upload_id = self._sets[-1], f"u{next(self._numbers)}"
        elements = [f"{set_name}/{upload_id}/{number}".encode() for number in range(2000)]
        self.service.elements[set_name][upload_id] = elements
        with self.service.process.connect() as connection:
            connection.add(set_name, elements, upload_id=upload_id)
        self.service.confirmed[set_name].add(upload_id)
        self.done["library uploads"] += 1
        return 0.5

    def _publish(self) -> float:
        """One publish, tried until it is published; now and then a new generation of sets."""
        if time.monotonic() > self._next_generation:
            self._renew_sets()
        set_name, request_id = self._sets[-1], f"r{next(self._numbers)}"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with suppress(*ERRORS):
                release = self.service.publish(set_name, request_id)
                self.done[f"publishes: {release.state}"] += 1
                return 1.0
            if set_name not in self._sets or self._stop.is_set() or not self._go.is_set():
                return 0.0
            time.sleep(0.2)
        raise AssertionError(f"publish {request_id} could not be finished in {PATIENCE_SECONDS:g} s")

    def _read(self) -> float:
        """Open the newest release as a reader does, and ask it; and follow it for a while."""
        pinned = [bytes.fromhex(self.service.process.public_key)]
        with suppress(*ERRORS):
            view = veilset.open(self.service.redis.url, self._sets[-1], public_keys=pinned)
            view.contains_many([b"a", b"b"])
            self.done["reads"] += 1
        with suppress(*ERRORS), veilset.follow(self.service.redis.url, self._sets[-1], public_keys=pinned) as follower:
            before = 0
            for _ in range(10):
                sequence = follower.sequence
                assert sequence >= before, "a follower went back"
                before = sequence
                time.sleep(0.2)
            self.done["follows"] += 1
        return 0.5

    def _ask(self) -> float:
        """Questions, and a scrape; one that is refused."""
        with self.service.process.connect() as connection:
            began = time.monotonic()
            connection.get_set(self._sets[-1])
            self.answer_seconds.append(time.monotonic() - began)
            next(connection.list_releases(self._sets[-1]), None)
            connection.budget(self._sets[-1])
            with suppress(VeilsetError):
                connection.get_set("not-there")
        scrape(self.service.process.metrics)
        self.done["questions"] += 1
        return 0.2

    def _renew_sets(self) -> None:
        """A new set; the oldest of three goes. The first time two."""
        wanted = [f"{self.name}-{next(self._generations)}" for _ in range(1 if self._sets else 2)]
        for set_name in wanted:
            self.service.create(set_name, RELEASES)
        self._sets = [*self._sets, *wanted]
        self._next_generation = time.monotonic() + GENERATION_SECONDS
        if len(self._sets) > 2:
            gone, self._sets = self._sets[0], self._sets[1:]
            time.sleep(1.0)  # another thread may have chosen it a moment ago
            with self.service.process.connect() as connection:
                connection.delete_set(gone)
            self.done["sets deleted"] += 1
