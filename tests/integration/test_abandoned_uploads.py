"""Uploads that nobody continues go, by a clock that never jumps and over restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_examples import add_set, digests_of, new_files, new_ledger

from veilset.errors import NotFound
from veilset_server.records import UploadState
from veilset_server.state.idle_file import FILE_NAME, IdleFile
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.vector_files import VectorFiles
from veilset_server.usecases.abandoned_uploads import AbandonedUploads

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
def files(tmp_path: Path) -> VectorFiles:
    """The files beside it."""
    return new_files(tmp_path)


def watch(ledger: SqliteLedger, files: VectorFiles, folder: Path, uptime: Uptime) -> AbandonedUploads:
    """What a service that starts now has."""
    return AbandonedUploads(ledger, files, IdleFile(folder), HOUR, uptime)


def spool_dates(folder: Path, seconds: float) -> None:
    """As if the wall clock had been so when the spools were last written."""
    for path in (folder / "spools").iterdir():
        os.utime(path, (seconds, seconds))


def test_abandoned_uploads_are_dropped_whole(tmp_path: Path, ledger: SqliteLedger, files: VectorFiles) -> None:
    """Open ones that nobody opened or appended to; resumed, growing and accepted ones stay."""
    uptime = Uptime(1000.0)
    abandoned = watch(ledger, files, tmp_path, uptime)
    spools = {}
    for upload_id in ("abandoned", "no spool yet", "resumed", "growing", "accepted", "held by a hung stream"):
        ledger.open_upload(1, upload_id)
        if upload_id != "no spool yet":
            spools[upload_id] = files.open_spool(1, upload_id)
            spools[upload_id].append(1, digests_of(1))
    ledger.accept_upload(1, "accepted", 5)
    assert abandoned.drop() == 0
    uptime.seconds += HOUR - 1
    assert abandoned.drop() == 0
    files.open_spool(1, "resumed").close()
    spools["growing"].append(2, digests_of(2))
    uptime.seconds += 1
    assert abandoned.drop() == 3
    assert {upload.upload_id for upload in ledger.all_open_uploads()} == {"resumed", "growing"}
    assert ledger.open_upload(1, "accepted").state is UploadState.MERGING
    assert len(list((tmp_path / "spools").iterdir())) == 3
    for upload_id in ("abandoned", "held by a hung stream"):
        with pytest.raises(NotFound):
            spools[upload_id].append(2, digests_of(2))
        with pytest.raises(NotFound):
            spools[upload_id].sync()
    again = files.open_spool(1, "abandoned")
    assert (again.sequence, again.elements) == (0, 0)
    uptime.seconds += HOUR + 1
    assert abandoned.drop() == 2
    for spool in (again, *spools.values()):
        spool.close()


@pytest.mark.parametrize("years", [-10, 10])
def test_a_wrong_wall_clock_drops_nothing(tmp_path: Path, ledger: SqliteLedger, files: VectorFiles, years: int) -> None:
    """Not even one that is wrong when the service starts: the spools look ten years old, or written in ten years."""
    ledger.open_upload(1, "u")
    files.open_spool(1, "u").close()
    uptime = Uptime(0.0)
    spool_dates(tmp_path, 1_700_000_000 - years * 365 * 86_400)
    abandoned = watch(ledger, files, tmp_path, uptime)
    for _ in range(3):
        assert abandoned.drop() == 0
        uptime.seconds += HOUR / 4
    assert len(ledger.all_open_uploads()) == 1


def test_ages_add_up_over_restarts_but_not_over_the_time_between(
    tmp_path: Path, ledger: SqliteLedger, files: VectorFiles
) -> None:
    """A service that is restarted every twenty minutes still lets go; one that was down for a year has given nobody a chance."""
    ledger.open_upload(1, "u")
    files.open_spool(1, "u").close()
    dropped = []
    for start in (0.0, 5.0, 1e9, 3.0):
        uptime = Uptime(start)
        abandoned = watch(ledger, files, tmp_path, uptime)
        for _ in range(20):
            uptime.seconds += 60
            dropped.append(abandoned.drop())
    assert sum(dropped) == 1
    assert 60 <= dropped.index(1) <= 66  # minutes of service; each start has to see the trace again


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}", b"[[1]]", b'[[1, "x", -1.0, null]]', b"[[1, 2, 3.0, null]]", b"\xff"]
)
def test_a_damaged_record_only_makes_uploads_stay(
    tmp_path: Path, ledger: SqliteLedger, files: VectorFiles, content: bytes
) -> None:
    """It is a help for memory; the log names it."""
    ledger.open_upload(1, "u")
    (tmp_path / FILE_NAME).write_bytes(content)
    uptime = Uptime()
    abandoned = watch(ledger, files, tmp_path, uptime)
    uptime.seconds += 2 * HOUR
    assert abandoned.drop() == 0
    uptime.seconds += HOUR
    assert abandoned.drop() == 1


def test_the_record_tells_no_upload_id(tmp_path: Path, ledger: SqliteLedger, files: VectorFiles) -> None:
    """It is its producer's secret."""
    ledger.open_upload(1, "the-secret-id")
    uptime = Uptime()
    abandoned = watch(ledger, files, tmp_path, uptime)
    uptime.seconds += HOUR / 2
    abandoned.drop()
    assert b"the-secret-id" not in (tmp_path / FILE_NAME).read_bytes()
    assert len(IdleFile(tmp_path).read()) == 1
