"""SIGKILL at every step of removals and of the compaction behind a publish: no element is lost, none comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_copy import orphaned_files
from stricken import SECONDS, Stricken, stricken, wait_for

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.vectors import held_digests
from veilset.core.elements.hashing import digests
from veilset.v1 import membership_pb2 as pb

STEPS = (
    ("ledger.add_batches", 1),
    ("ledger.finish_upload", 1),
    ("anchor.write", 1),
    ("ledger.charge_release", 1),
    ("ledger.new_run_file", 1),
    ("run.write", 1),
    ("run.write", 2),
    ("run.written", 1),
    ("ledger.replace_items", 1),
    ("runs.remove_spool", 1),
    ("ledger.forget_leftovers", 1),
)
SHORT = (("run.written", 1), ("ledger.replace_items", 1), ("runs.remove_spool", 1))


class Content:
    """A set that gains and loses elements in rounds, each of which may be repeated; what it holds by plain means."""

    def __init__(self, service: Stricken) -> None:
        self._service = service
        self.elements: set[bytes] = set()
        service.create("s")
        with service.process.connect() as connection:
            self._seed = connection.get_set("s").hashing.seed

    def round(self, number: int) -> None:
        """Add two elements, remove an earlier one, add one by one call, publish."""
        added = [b"%d a" % number, b"%d b" % number]
        with self._service.process.connect() as connection, self._service.process.stub() as stub:
            connection.add("s", added, upload_id=f"{number} add")
            connection.remove("s", [b"%d a" % number, b"%d b" % (number - 1)], upload_id=f"{number} remove")
            small = pb.AddBatchRequest(set_name="s", upload_id=f"{number} small")
            small.elements.values.append(b"%d c" % number)
            stub.AddBatch(small, timeout=SECONDS)
            connection.publish("s", request_id=f"{number}")
        self.elements -= {b"%d b" % (number - 1)}
        self.elements |= {b"%d b" % number, b"%d c" % number}

    def check(self) -> None:
        """With the service running."""
        state = self._service.state
        assert held_digests(state, "s") == set(digests(sorted(self.elements), seed=self._seed).tolist())
        assert wait_for(lambda: not orphaned_files(state), SECONDS), (
            "a file stayed that belongs to no upload and no set"
        )
        assert not (state / "quarantine").exists()


def strike_all(
    folder: Path, start_redis: Callable[..., RedisServer], steps: tuple[tuple[str, int], ...], trying: Trying
) -> None:
    with stricken(folder, start_redis) as service:
        content = Content(service)
        content.round(0)
        content.check()
        for number, ((step, call), when) in enumerate(itertools.product(steps, ("before", "after")), start=1):
            with trying("SIGKILL in a removal or a compaction"):
                service.strike(step, when, lambda n=number: content.round(n), call)  # type: ignore[misc]
                service.process.start()
                content.round(number)
                content.check()
                service.settled()
        assert service.check_dead().charges[-1].sequence == len(steps) * 2 + 1


def test_a_kill_in_a_compaction(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    strike_all(tmp_path, start_redis, SHORT, trying)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_at_every_step(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    strike_all(tmp_path, start_redis, STEPS, trying)
