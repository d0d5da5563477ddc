"""Uploads that nobody continues go, by a clock that never jumps and over restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_examples import add_set, digests_of, new_ledger, new_runs

from veilset.core.params import Operation
from veilset.errors import NotFound
from veilset_server.records import Upload, UploadState
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.usecases.abandoned_uploads import FILE_NAME, AbandonedUploads, IdleFile

HOUR = 3600.0


class Uptime:
    """A monotonic clock that the test turns; each process starts where it likes."""

    def __init__(self, start: float = 0.0) -> None:
        self.seconds = start

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """A ledger with one set, whose id is 1."""
    with new_ledger(tmp_path) as found:
        add_set(found)
        yield found


@pytest.fixture
def runs(tmp_path: Path, ledger: SqliteLedger) -> Runs:
    """The files beside it."""
    return new_runs(tmp_path, ledger)


def opened(ledger: SqliteLedger, upload_id: str, part: int = 0) -> Upload:
    """An open upload in the ledger."""
    return ledger.open_upload(1, upload_id, part, Operation.ADD)


def watch(ledger: SqliteLedger, runs: Runs, folder: Path, uptime: Uptime) -> AbandonedUploads:
    """What a service that starts now has."""
    return AbandonedUploads(ledger, runs, IdleFile(folder), HOUR, uptime)


def spool_dates(folder: Path, seconds: float) -> None:
    """As if the wall clock had been so when the spools were last written."""
    for path in (folder / "spools").iterdir():
        os.utime(path, (seconds, seconds))


def test_abandoned_uploads_are_dropped_whole(tmp_path: Path, ledger: SqliteLedger, runs: Runs) -> None:
    """Open ones that were neither opened nor appended to; resumed, growing and finished ones stay."""
    uptime = Uptime(1000.0)
    abandoned = watch(ledger, runs, tmp_path, uptime)
    spools, uploads = {}, {}
    for upload_id in ("abandoned", "no spool yet", "resumed", "growing", "finished", "held by a hung stream"):
        uploads[upload_id] = opened(ledger, upload_id)
        if upload_id != "no spool yet":
            spools[upload_id] = runs.open_spool(uploads[upload_id])
            spools[upload_id].append(1, digests_of(1))
    ledger.finish_upload(uploads["finished"], 5, spools["finished"].checksum())
    assert abandoned.drop() == 0
    uptime.seconds += HOUR - 1
    assert abandoned.drop() == 0
    runs.open_spool(uploads["resumed"]).close()
    spools["growing"].append(2, digests_of(2))
    uptime.seconds += 1
    assert abandoned.drop() == 3
    assert {upload.upload_id for upload in ledger.all_open_uploads()} == {"resumed", "growing"}
    assert opened(ledger, "finished").state is UploadState.FINISHED
    assert len(list((tmp_path / "spools").iterdir())) == 3
    for upload_id in ("abandoned", "held by a hung stream"):
        with pytest.raises(NotFound):
            spools[upload_id].append(2, digests_of(2))
        with pytest.raises(NotFound):
            spools[upload_id].sync()
    again = runs.open_spool(opened(ledger, "abandoned"))
    assert (again.sequence, again.elements) == (0, 0)
    uptime.seconds += HOUR + 1
    assert abandoned.drop() == 2
    for spool in (again, *spools.values()):
        spool.close()


def test_one_growing_part_keeps_all_parts(tmp_path: Path, ledger: SqliteLedger, runs: Runs) -> None:
    """Sealed ones too; when nothing grows any more all go together."""
    uptime = Uptime()
    abandoned = watch(ledger, runs, tmp_path, uptime)
    parts = [opened(ledger, "u", part) for part in (1, 2)]
    spools = [runs.open_spool(part) for part in parts]
    ledger.seal_part(parts[0], 0, spools[0].checksum())
    for batch in (1, 2, 3):
        assert abandoned.drop() == 0
        uptime.seconds += HOUR - 1
        spools[1].append(batch, digests_of(batch))
    assert abandoned.drop() == 0
    uptime.seconds += HOUR
    assert abandoned.drop() == 1
    assert not list((tmp_path / "spools").iterdir())
    for spool in spools:
        spool.close()


@pytest.mark.parametrize("years", [-10, 10])
def test_a_wrong_wall_clock_drops_nothing(tmp_path: Path, ledger: SqliteLedger, runs: Runs, years: int) -> None:
    """Not even one that is wrong when the service starts: the spools look ten years old, or written in ten years."""
    runs.open_spool(opened(ledger, "u")).close()
    uptime = Uptime(0.0)
    spool_dates(tmp_path, 1_700_000_000 - years * 365 * 86_400)
    abandoned = watch(ledger, runs, tmp_path, uptime)
    for _ in range(3):
        assert abandoned.drop() == 0
        uptime.seconds += HOUR / 4
    assert len(ledger.all_open_uploads()) == 1


def test_ages_add_up_over_restarts_but_not_over_the_time_between(
    tmp_path: Path, ledger: SqliteLedger, runs: Runs
) -> None:
    """A service that is restarted every twenty minutes still lets go; one that was down for a year has given nobody a chance."""
    runs.open_spool(opened(ledger, "u")).close()
    dropped = []
    for start in (0.0, 5.0, 1e9, 3.0):
        uptime = Uptime(start)
        abandoned = watch(ledger, runs, tmp_path, uptime)
        for _ in range(20):
            uptime.seconds += 60
            dropped.append(abandoned.drop())
    assert sum(dropped) == 1
    assert 60 <= dropped.index(1) <= 66  # minutes of service; each start has to see the trace again


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}", b"[[1]]", b"[[1, 2, -1.0, null]]", b'[[1, "x", 3.0, null]]', b"\xff"]
)
def test_a_damaged_record_only_makes_uploads_stay(
    tmp_path: Path, ledger: SqliteLedger, runs: Runs, content: bytes
) -> None:
    """It is a help for memory; the log names it."""
    opened(ledger, "u")
    (tmp_path / FILE_NAME).write_bytes(content)
    uptime = Uptime()
    abandoned = watch(ledger, runs, tmp_path, uptime)
    uptime.seconds += 2 * HOUR
    assert abandoned.drop() == 0
    uptime.seconds += HOUR
    assert abandoned.drop() == 1


def test_the_record_tells_no_upload_id(tmp_path: Path, ledger: SqliteLedger, runs: Runs) -> None:
    """It is its producer's secret."""
    opened(ledger, "the-secret-id")
    uptime = Uptime()
    abandoned = watch(ledger, runs, tmp_path, uptime)
    uptime.seconds += HOUR / 2
    abandoned.drop()
    assert b"the-secret-id" not in (tmp_path / FILE_NAME).read_bytes()
    assert len(IdleFile(tmp_path).read()) == 1
