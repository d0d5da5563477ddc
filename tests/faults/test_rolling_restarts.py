"""Restarts under load: nobody has to care. Every upload that the library reports as done is in the set, every publish is charged
once, and each stop ends well."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.programs import environment, unused_port
from harness.service_process import ServiceProcess, running
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector
from veilset._service.service import Service, connect
from veilset.errors import Unavailable

BATCH = 200
BATCHES = 20
PRODUCERS = 3
RETRY_SECONDS = 600.0


class Load:
    """Producers and a publisher that go on until they are told to stop; what they were told is done."""

    def __init__(self, address: str, set_name: str, folder: Path) -> None:
        self._address = address
        self._set_name = set_name
        self._folder = folder
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.finished: list[bytes] = []
        self.uploads = 0
        self.published = 0

    def stop(self) -> None:
        """After what is in hand."""
        self._stop.set()

    def _done(self, elements: list[bytes]) -> None:
        with self._lock:
            self.finished += elements
            self.uploads += 1

    def produce(self, name: str) -> None:
        """By the library, slowly, so that uploads are under way whenever the service goes."""
        with connect(self._address) as connection:
            upload = 0
            while not self._stop.is_set():
                elements = [f"{name}/{upload}/{i}".encode() for i in range(BATCH * BATCHES)]
                result = connection.add(self._set_name, self._slowly(elements), retry_seconds=RETRY_SECONDS)
                assert result.elements == len(elements)
                self._done(elements)
                upload += 1

    @staticmethod
    def _slowly(elements: list[bytes]) -> Iterator[bytes]:
        for number, element in enumerate(elements):
            if number % BATCH == 0:
                time.sleep(0.02)
            yield element

    def run_commands(self, name: str) -> None:
        """By the command line."""
        upload = 0
        while not self._stop.is_set():
            elements = [f"{name}/{upload}/{i}".encode() for i in range(BATCH * BATCHES)]
            file = self._folder / f"{name}.txt"
            file.write_bytes(b"\n".join(elements))
            command = [sys.executable, "-m", "veilset", "add", self._set_name, str(file), "--server", self._address]
            done = subprocess.run(
                [*command, "--retry-seconds", str(RETRY_SECONDS), "--json"],
                stdout=subprocess.PIPE,
                env=environment(),
                check=True,
            )
            assert json.loads(done.stdout)["elements"] == len(elements)
            self._done(elements)
            upload += 1

    def publish(self) -> None:
        """Each with a request id of its own, asked for until it is answered."""
        with connect(self._address) as connection:
            while not self._stop.is_set():
                self._publish_once(connection, f"request {self.published}")
                self.published += 1
                self._stop.wait(0.5)

    def _publish_once(self, connection: Service, request_id: str) -> None:
        while True:
            try:
                connection.publish(self._set_name, request_id=request_id, wait=False)
            except Unavailable:
                time.sleep(0.1)
            else:
                return


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("restarts", "drain_seconds"),
    [
        pytest.param(3, 10.0, marks=pytest.mark.faults),
        pytest.param(50, 10.0, marks=pytest.mark.faults),
        pytest.param(10, 0.0, marks=pytest.mark.faults),  # no time at all: streams are cut
    ],
)
def test_rolling_restarts_lose_nothing(
    restarts: int, drain_seconds: float, valkey_url: str, set_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every finished upload's positions are ones, and no others; one charge per request; exit code 0 each time."""
    monkeypatch.setattr("veilset._input.columns.element_batches.__defaults__", (BATCH,))
    monkeypatch.setattr("veilset._service.upload.MESSAGE_ELEMENTS", BATCH)
    options = ("--redis", valkey_url, "--drain-seconds", str(drain_seconds))
    with running(ServiceProcess(tmp_path / "state", options, port=unused_port())) as service:
        with service.connect() as connection:
            shape = shape_of_set(
                connection.create_set(
                    set_name,
                    size=1_000_000,
                    epsilon=0.01,
                    adjacency="add-remove",
                    budget_epsilon=50,
                    allow_poor_utility=True,
                )
            )
            connection.add(set_name, [b"first"])
        load = Load(service.address, set_name, tmp_path)
        jobs: list[Callable[[], None]] = [lambda name=f"p{i}": load.produce(name) for i in range(PRODUCERS)]  # type: ignore[misc]
        jobs += [lambda: load.run_commands("c"), load.publish]
        with ThreadPoolExecutor(len(jobs)) as pool:
            running_jobs: list[Future[None]] = [pool.submit(job) for job in jobs]
            try:
                for _ in range(restarts):
                    before = load.uploads
                    deadline = time.monotonic() + RETRY_SECONDS
                    while load.uploads <= before:
                        assert not any(job.done() for job in running_jobs), "somebody gave up"
                        assert time.monotonic() < deadline, "no upload gets done"
                        time.sleep(0.02)
                    service.stop()  # ends with 0, and its log is one of JSON lines
                    service.start()
            finally:
                load.stop()
                for job in running_jobs:  # an error of theirs says more than ours
                    job.result()
        with service.connect() as connection:
            budget = connection.budget(set_name)
        assert budget.charges == load.published
        assert raw_vector(service.state, set_name) == expected_vector(shape, [b"first", *load.finished])
        print(f"{restarts} restarts: {load.uploads} uploads, {len(load.finished)} elements, {load.published} releases")
