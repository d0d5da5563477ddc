"""A service that is struck down again and again on one state folder and one Redis, and what must hold each time."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import grpc
from ledger_copy import ChargeRow, LedgerContent, orphaned_files, read_ledger

from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.vectors import held_digests, redis_content
from veilset._service.records import Release
from veilset._service.service import Service
from veilset.core.elements.hashing import digests
from veilset.core.release.header import check_chunk
from veilset.core.release.signing import open_manifest
from veilset.errors import VeilsetError

PROGRAM = Path(__file__).with_name("killing_service.py")
SECONDS = 20.0
BITS = (2 << 23) + 77  # three chunks, the last one not a whole byte
HASHES = 2
BATCH = 50
OPTIONS: tuple[str, ...] = ("--reconcile-seconds", "0.5", "--drain-seconds", "1")

_snares = itertools.count(1)


class Stricken:
    """The service, its Redis, and all that it ever acknowledged or showed. Sets are made by `create`."""

    def __init__(self, folder: Path, redis: RedisServer, *options: str | Path, port: int = 0) -> None:
        self.redis = redis
        self.snare = folder / "snare.json"
        self.process = ServiceProcess(
            folder / "state",
            ["--redis", redis.url, *OPTIONS, *options],
            program=(str(PROGRAM), str(self.snare)),
            port=port,
        )
        self.elements: dict[str, dict[str, list[bytes]]] = defaultdict(dict)
        self.confirmed: dict[str, set[str]] = defaultdict(set)
        self._shown: dict[str, bytes] = {}
        self._manifests: dict[tuple[str, str], bytes] = {}
        self._acknowledged: dict[tuple[str, str], int] = {}

    @property
    def state(self) -> Path:
        """Its state folder."""
        return self.process.state

    # Striking

    def strike(self, step: str, when: str, act: Callable[[], object], call: int = 1) -> bool:
        """Kill the running service at a step of what ``act`` asks of it; whether it came by there. `check_dead` then."""
        self.arm(step, when, call)
        return self.falls(act)

    def falls(self, act: Callable[[], object]) -> bool:
        """Do ``act`` while something is set to kill the service; whether it did. `check_dead` then."""
        with suppress(VeilsetError, grpc.RpcError):
            act()
        return self._fallen()

    def strike_start(self, step: str, when: str, call: int = 1) -> bool:
        """Start the service, to be killed at a step of its recovery; whether it came by there."""
        self.arm(step, when, call)
        with suppress(AssertionError):  # it may fall before it says that it is ready
            self.process.start()
        if self.process.started:
            return self._fallen()
        self.snare.unlink()
        self.check_dead()
        return True

    def arm(self, step: str, when: str, call: int = 1) -> None:
        """Lay the snare."""
        content = {"step": step, "when": when, "call": call, "id": next(_snares)}
        temporary = self.snare.with_suffix(".tmp")
        temporary.write_text(json.dumps(content))
        temporary.rename(self.snare)

    def _fallen(self, seconds: float = 3.0) -> bool:
        fell = wait_for(lambda: not self.process.runs, seconds)
        self.snare.unlink(missing_ok=True)
        self.process.kill()
        self.check_dead()
        return fell

    # What must hold

    def check_dead(self) -> LedgerContent:
        """With the service just killed: nothing is visible that is not charged, and no budget is overspent."""
        ledger = read_ledger(self.state)
        self._check_store(ledger)
        return ledger

    def _check_store(self, ledger: LedgerContent) -> None:
        self._check_budgets(ledger)
        charged = {(row.set_name, row.sequence): row for row in ledger.charges}
        for key, value in redis_content(self.redis.url).items():
            if key == "veilset:probe":
                continue
            _, set_name, sequence, *rest = key.split(":")
            if sequence == "latest":
                assert (set_name, int(value)) in charged, f"{key} points at a release that is not charged"
                continue
            row = charged.get((set_name, int(sequence)))
            assert row is not None, f"{key} is visible but not charged"
            _check_value(row, rest, value)
            assert self._shown.setdefault(key, value) == value, f"{key} shows other bytes than it did"

    def _check_budgets(self, ledger: LedgerContent) -> None:
        for account, (nano_epsilon, delta) in ledger.accounts.items():
            rows = [row for row in ledger.charges if row.account == account]
            assert sum(row.nano_epsilon for row in rows) <= nano_epsilon
            assert sum((row.delta for row in rows), Fraction(0)) <= delta
        requests = [(row.set_id, row.request_id) for row in ledger.charges if row.request_id is not None]
        assert len(set(requests)) == len(requests), "a request was charged twice"
        for row in ledger.charges:
            if row.request_id is not None and row.manifest is not None:
                known = self._manifests.setdefault((row.set_name, row.request_id), row.manifest)
                assert known == row.manifest, "a request's release became another"

    def check_alive(self) -> LedgerContent:
        """With the service running: all that is charged arrives, Redis is as the ledger says, nothing acknowledged is lost, and
        no digest stays that is needed no more."""
        ledger = self.settled()
        self._check_store(ledger)
        wanted = _published_keys(ledger)
        assert wait_for(lambda: wanted.items() <= _known_values(redis_content(self.redis.url)).items(), SECONDS)
        for set_name in ledger.finished:
            self._check_vector(set_name, ledger)
        assert wait_for(lambda: not orphaned_files(self.state), SECONDS), (
            "a file stayed that belongs to no upload and no set"
        )
        return ledger

    def settled(self) -> LedgerContent:
        """The ledger once nothing is pending."""
        assert wait_for(lambda: all(row.state != "pending" for row in read_ledger(self.state).charges), SECONDS), (
            "a charged release did not arrive"
        )
        return read_ledger(self.state)

    def _check_vector(self, set_name: str, ledger: LedgerContent) -> None:
        finished = ledger.finished[set_name]
        assert self.confirmed[set_name] <= finished, "a finished upload was forgotten"
        with self.process.connect() as service:
            hashing = service.get_set(set_name).hashing
        elements = [element for upload in sorted(finished) for element in self.elements[set_name][upload]]
        assert held_digests(self.state, set_name) == set(digests(elements, hashing.scheme, hashing.seed).tolist())

    # Doing

    def create(self, set_name: str, releases: int = 400, **encoding: Any) -> None:
        """A set whose vector has three chunks, with a budget for so many releases. encoding: in place of Bloom's dimensions."""
        with self.process.connect() as service:
            service.create_set(
                set_name,
                size=10_000,
                epsilon=1,
                adjacency="add-remove",
                delta=1e-9,
                **(encoding or {"bits": BITS, "hashes": HASHES}),
                budget_epsilon=releases,
                allow_poor_utility=True,
            )

    def publish(self, set_name: str, request_id: str) -> Release:
        """Publish, or repeat a publish."""
        with self.process.connect() as service:
            return service.publish(set_name, request_id=request_id, timeout_seconds=SECONDS)

    def upload(self, set_name: str, upload_id: str, batches: int = 3) -> None:
        """Upload, or resume and finish, ``batches`` batches of raw elements; raises RpcError where the service falls."""
        elements = self.elements[set_name].setdefault(
            upload_id, [f"{set_name}/{upload_id}/{number}".encode() for number in range(batches * BATCH)]
        )
        held = self._acknowledged.setdefault((set_name, upload_id), 0)
        with self.process.stub() as stub, RawUpload(stub, open_upload(set_name, upload_id)) as stream:
            opened = stream.opened()
            if not opened.finished:
                assert opened.sequence >= held, "an acknowledged batch was lost"
                assert opened.elements == opened.sequence * BATCH
                for sequence in range(opened.sequence + 1, batches + 1):
                    stream.send(raw_batch(sequence, _batch(elements, sequence)))
                    assert stream.acknowledged() == (sequence, sequence * BATCH)
                    self._acknowledged[set_name, upload_id] = sequence
                stream.send(finish(len(elements)))
                assert stream.finished() == len(elements)
        self.confirmed[set_name].add(upload_id)


@contextmanager
def stricken(
    folder: Path, start_redis: Callable[[], RedisServer], *options: str | Path, port: int = 0
) -> Iterator[Stricken]:
    """Start it; whatever happens in the block, leave no process behind."""
    found = Stricken(folder, start_redis(), *options, port=port)
    try:
        found.process.start()
        yield found
    finally:
        found.process.end()


def _batch(elements: Sequence[bytes], sequence: int) -> Sequence[bytes]:
    return elements[(sequence - 1) * BATCH : sequence * BATCH]


def _published_keys(ledger: LedgerContent) -> dict[str, bytes | None]:
    """What readers have to find: the keys of published releases, and where the pointers point."""
    keys: dict[str, bytes | None] = {}
    for row in ledger.charges:
        if row.state == "published" and row.manifest is not None:
            prefix = f"veilset:{row.set_name}:{row.sequence}"
            chunks = len(open_manifest(row.manifest).chunk_sha256)
            keys |= {f"{prefix}:manifest": None} | {f"{prefix}:bits:{index}": None for index in range(chunks)}
            keys[f"veilset:{row.set_name}:latest"] = str(row.sequence).encode()
    return keys


def _known_values(content: dict[str, bytes]) -> dict[str, bytes | None]:
    """Pointers with their values; of releases, which `check_dead` compares, the names only."""
    return {key: value if key.endswith(":latest") else None for key, value in content.items()}


def _check_value(row: ChargeRow, name: Sequence[str], value: bytes) -> None:
    """One key of a release is what its charge says."""
    assert row.manifest is not None
    if name[0] == "manifest":
        assert value == row.manifest
    else:
        check_chunk(open_manifest(row.manifest), int(name[1]), value)


def create_small_set(service: Service, bits: int = 1 << 20, releases: int = 10) -> None:
    """A set named s with two elements in it; a vector may be long however few they are."""
    service.create_set(
        "s",
        size=1000,
        epsilon=1,
        adjacency="add-remove",
        delta=1e-9,
        bits=bits,
        hashes=1,
        budget_epsilon=releases,
        allow_poor_utility=True,
    )
    service.add("s", ["a", "b"])


def wait_for(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came to hold within that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
