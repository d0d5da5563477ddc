"""A full disk: every write is refused cleanly, nothing half-made stays, and all goes on once there is space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from storage_examples import StoppedClock, add_set, charge_of, digests_of, publish, upload_of

from harness.full_disk import fill_up as fill_up_disk
from harness.full_disk import small_disk
from veilset.core.params import Operation
from veilset.errors import StorageFull
from veilset_server.state.runs import MANY_RUNS
from veilset_server.state.state_folder import OpenedState, open_state

BYTES = 2 << 20


@pytest.fixture
def state(tmp_path: Path) -> Iterator[OpenedState]:
    """A state folder on a file system of its own, of 2 MiB."""
    with small_disk(tmp_path / "volume", BYTES) as volume, open_state(volume / "state", StoppedClock()) as opened:
        yield opened


def fill_up(state: OpenedState) -> Path:
    """Use up the disk to the last byte; removing the file gives the space back."""
    return fill_up_disk(state.folder.path.parent)


def names(state: OpenedState) -> set[str]:
    """All files of the folder."""
    return {str(path.relative_to(state.folder.path)) for path in state.folder.path.rglob("*")}


def test_a_compaction_that_does_not_fit_leaves_the_old_runs(state: OpenedState) -> None:
    """What the set holds is read as before; with space again it is folded."""
    stored = add_set(state.ledger)
    for number in range(MANY_RUNS):
        upload = state.ledger.open_upload(stored.set_id, f"{number}", 0, Operation.ADD)
        spool = state.runs.open_spool(upload)
        spool.append(1, digests_of(number, 2000))
        spool.sync()
        spool.close()
        state.ledger.finish_upload(upload, 2000, spool.checksum())
    expected = np.unique(np.concatenate([digests_of(number, 2000) for number in range(MANY_RUNS)]))
    ballast = fill_up(state)
    os.truncate(ballast, ballast.stat().st_size - 16 * 4096)
    with pytest.raises(StorageFull, match=r"runs/1-25\.run"):
        state.runs.compact(stored.set_id)
    assert not list((state.folder.path / "runs").iterdir())
    for _ in range(2):
        with state.runs.sorted_chunks(stored.set_id) as chunks:
            assert np.array_equal(np.concatenate(list(chunks)), expected)
        ballast.unlink(missing_ok=True)
        state.runs.compact(stored.set_id)
        state.runs.discard()
    assert len(list((state.folder.path / "runs").iterdir())) == 1


def test_a_batch_that_does_not_fit_is_not_held(state: OpenedState) -> None:
    """The batches before it are; the same batch goes in once there is space, and after a reopen too."""
    spool = state.runs.open_spool(upload_of())
    spool.append(1, digests_of(1))
    ballast = fill_up(state)
    for _ in range(3):
        with pytest.raises(StorageFull, match="spools/"):
            spool.append(2, digests_of(2, 20_000))
    assert (spool.sequence, spool.elements) == (1, 5)
    spool.close()
    spool = state.runs.open_spool(upload_of())
    assert (spool.sequence, spool.elements) == (1, 5)
    ballast.unlink()
    spool.append(2, digests_of(2, 20_000))
    assert (spool.sequence, spool.elements) == (2, 20_005)
    spool.close()


def test_a_batch_of_which_a_part_fits_is_taken_back(state: OpenedState) -> None:
    """The kernel writes what fits and says so; the file is as before."""
    spool = state.runs.open_spool(upload_of())
    ballast = fill_up(state)
    os.truncate(ballast, ballast.stat().st_size - 8 * 4096)
    (path,) = (state.folder.path / "spools").iterdir()
    before = path.read_bytes()
    with pytest.raises(StorageFull):
        spool.append(1, digests_of(1, 20_000))
    assert path.read_bytes() == before
    spool.close()


def test_an_artefact_that_does_not_fit_draws_no_noise(state: OpenedState) -> None:
    """It is refused before its first chunk is asked for, and leaves nothing."""
    fill_up(state)
    before = names(state)

    class Noise:
        def __iter__(self) -> Noise:
            return self

        def __next__(self) -> bytes:
            raise AssertionError("asked for noise without a place for it")

    with pytest.raises(StorageFull, match="artefacts/1-1"):
        state.artefacts.write(1, 1, Noise(), 1 << 16)
    assert names(state) == before


def test_a_ledger_on_a_full_disk_refuses_and_goes_on(state: OpenedState) -> None:
    """No charge is half-made: refused ones are not there, granted ones are; all is sound at the next start."""
    stored = add_set(state.ledger, epsilon=1000, delta=1e-3)
    publish(state.ledger, stored, "before", charge_of())
    ballast = fill_up(state)
    with pytest.raises(StorageFull, match=r"ledger\.db"):
        publish(state.ledger, stored, "during", charge_of())
    with pytest.raises(StorageFull):
        add_set(state.ledger, "other")
    assert state.ledger.get_account("guests").charges == 1
    ballast.unlink()
    assert publish(state.ledger, stored, "during", charge_of()).sequence == 2
    path = state.folder.path
    state.ledger.close()
    state.folder.close()
    with open_state(path, StoppedClock()) as reopened:
        assert reopened.ledger.get_account("guests").charges == 2


def test_a_full_disk_does_not_keep_the_server_from_starting(state: OpenedState) -> None:
    """It reads, and refuses what has to be written."""
    add_set(state.ledger)
    ballast = fill_up(state)
    state.ledger.close()
    state.folder.close()
    with open_state(state.folder.path, StoppedClock()) as reopened:
        assert reopened.ledger.get_set("guests").set_id == 1
        with pytest.raises(StorageFull):
            reopened.runs.open_spool(upload_of())
    ballast.unlink()
