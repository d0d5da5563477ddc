"""SIGKILL at every step of a merge: what was acknowledged is there when it is back, and the vector is whole or not in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from stricken import Stricken, stricken

from harness.fault_tally import Trying
from harness.raw_merges import RawMerge, chunk, finish_merge, open_merge
from harness.redis_server import RedisServer
from harness.vectors import expected_vector
from veilset_server.principals import EVERYBODY
from veilset_server.usecases.upload_ids import UploadContent, kept_id

STEPS = (
    ("ledger.open_upload", 1),
    ("files.open_vector_spool", 1),
    ("sync_file", 1),
    ("chunk.append", 1),
    ("chunk.append", 3),
    ("spool.write_mark", 2),
    ("spool.sync", 1),
    ("ledger.accept_upload", 1),
    ("sums.write", 1),
    ("bloom.unite", 1),
    ("bloom.unite", 2),
    ("vector.sync", 1),
    ("sums.write", 2),
    ("ledger.finish_upload", 1),
    ("files.remove_spool", 1),
)
SHORT = (("chunk.append", 2), ("bloom.unite", 2), ("files.remove_spool", 1))
BEHIND = (("chunk.append", 2), ("ledger.accept_upload", 1), ("bloom.unite", 1), ("ledger.finish_upload", 1))
RECOVERY_STEPS = (("bloom.unite", 2), ("sums.write", 2))
ELEMENTS = 150

_merges = itertools.count(1)
_held: dict[str, int] = {}


def merge(service: Stricken, upload_id: str) -> None:
    """Merge, or resume and finish, a vector of three chunks; raises RpcError where the service falls."""
    ledger_id = kept_id(UploadContent.VECTOR, EVERYBODY, upload_id)
    elements = service.elements["s"].setdefault(ledger_id, [f"{upload_id}/{n}".encode() for n in range(ELEMENTS)])
    with service.process.connect() as connection:
        shape = connection.get_set("s").filter
    vector = expected_vector(shape, elements)
    with service.process.stub() as stub, RawMerge(stub, open_merge("s", upload_id, shape)) as stream:
        opened = stream.opened()
        if not opened.finished:
            assert opened.chunks >= _held.setdefault(upload_id, 0), "an acknowledged chunk was lost"
            for index in range(opened.chunks, 3):
                stream.send(chunk(vector, index))
                assert stream.acknowledged() == index + 1
                _held[upload_id] = index + 1
            stream.send(finish_merge(vector))
            assert stream.finished() == len(vector)
    service.confirmed["s"].add(ledger_id)


def strike_and_resume(service: Stricken, step: str, when: str, call: int) -> None:
    """Kill it in a merge, start it again, resume from the last acknowledgement."""
    upload_id = f"merge-{next(_merges)}"
    assert service.strike(step, when, lambda: merge(service, upload_id), call), (step, when, call)
    service.process.start()
    service.check_alive()
    merge(service, upload_id)
    service.check_alive()


def test_a_kill_while_merging(tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying) -> None:
    """The short part of the matrix below."""
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for step, call in SHORT:
            with trying("SIGKILL while receiving a vector"):
                strike_and_resume(service, step, "before", call)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_kill_at_every_step_of_a_merge(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """What merges share with uploads is struck there; here before each step, and behind what is theirs. Then all is published."""
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        strikes = [(step, "before") for step in STEPS] + [(step, "after") for step in BEHIND]
        for number, ((step, call), when) in enumerate(strikes):
            service.upload("s", f"upload-{number}", 1)
            with trying("SIGKILL while receiving a vector"):
                strike_and_resume(service, step, when, call)
        assert service.publish("s", "request").state == "published"


@pytest.mark.faults
def test_a_kill_while_recovering_a_merge(
    tmp_path: Path, start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Killed when its finish was just accepted, killed again while it is merged at the start."""
    with stricken(tmp_path, start_redis) as service:
        service.create("s")
        for (step, call), when in itertools.product(RECOVERY_STEPS, ("before", "after")):
            upload_id = f"merge-{next(_merges)}"
            with trying("SIGKILL while receiving a vector"):
                assert service.strike("ledger.accept_upload", "after", partial(merge, service, upload_id))
            with trying("SIGKILL while recovering a vector"):
                assert service.strike_start(step, when, call), (step, when, call)
                service.process.start()
                assert kept_id(UploadContent.VECTOR, EVERYBODY, upload_id) in service.check_alive().finished["s"]
