"""Vector and checksums of another age than the ledger: sound in themselves, and refused before they are read or merged into."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names, restarted
from storage_examples import StoppedClock, add_set, changing

from veilset.errors import StateCorrupted
from veilset_server.records import VectorRecord
from veilset_server.state import raw_vectors
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.opened_state import open_state
from veilset_server.state.vector_sums import sums_of_zeros

REFUSAL = r"vectors/1\.sums: not of the same age as the ledger; restore the whole state folder"


class Crash(BaseException):
    """The process is gone."""


def crash(*_: object) -> None:
    """In place of a step that the process did not live to see."""
    raise Crash


@pytest.fixture(params=[True, False], ids=["on a copy", "in place"])
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A service with an empty set that promises 50 elements, for both ways of merging."""
    if not request.param:
        monkeypatch.setattr(raw_vectors, "PRIVATE_BYTES", 0)
    found = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    found.create(min_size=50, budget=100)
    yield found
    found.close()


def kept(folder: Path, name: str) -> Path:
    """A backup of the vectors alone."""
    return Path(shutil.copytree(folder / "vectors", folder / "backups" / name))


def restore(folder: Path, backup: Path) -> None:
    """Put that backup in place of the vectors."""
    shutil.rmtree(folder / "vectors")
    shutil.copytree(backup, folder / "vectors")


def refuses(desk: Desk, folder: Path) -> None:
    """Neither published nor merged into, nothing charged or written."""
    before = desk.account().charges, desk.ledger.finished_uploads(1), files(folder)
    with pytest.raises(StateCorrupted, match=REFUSAL) as refused:
        desk.publish(f"refused {folder}")
    assert refused.value.details["file"] == "vectors/1.sums"
    with pytest.raises(StateCorrupted, match=REFUSAL):
        desk.upload("merged into another age", names(3, 900_000))
    assert (desk.account().charges, desk.ledger.finished_uploads(1), files(folder)) == before


def files(folder: Path) -> dict[str, bytes]:
    """What the vectors and artefacts are."""
    return {
        path.name: path.read_bytes() for name in ("vectors", "artefacts") for path in sorted((folder / name).iterdir())
    }


def test_an_older_pair_is_refused_and_its_elements_prove_no_size(desk: Desk, tmp_path: Path) -> None:
    """Of any age, zeros too, before and after a restart; the present pair put back, all goes on."""
    backups = [kept(tmp_path, "zeros")]
    for number, count in enumerate((10, 20, 70)):
        desk.upload(f"upload {number}", names(count, 1000 * number))
        backups.append(kept(tmp_path, f"after {number}"))
    assert desk.ledger.get_set("set").proven_size >= 50
    present = backups.pop()
    for number, backup in enumerate(backups):
        restore(tmp_path, backup)
        if number:
            with pytest.raises(StateCorrupted, match=REFUSAL):
                desk.publish("before the restart")
        else:
            refuses(desk, tmp_path)
    again = restarted(desk, tmp_path)
    with pytest.raises(StateCorrupted, match=REFUSAL):
        again.publish("behind the restart")
    restore(tmp_path, present)
    assert again.publish("whole").sequence == 1
    assert again.ledger.merging_uploads() == []
    again.close()


def test_a_pair_of_another_set_or_made_anew_is_refused(desk: Desk, tmp_path: Path) -> None:
    """Zeros that a program made just now for the same set are sound in themselves."""
    desk.upload("one", names(100))
    for path in (tmp_path / "vectors").iterdir():
        path.unlink()
    desk.files.create_vector(1, 1 << 17)
    refuses(desk, tmp_path)


def test_a_newer_pair_beside_an_older_ledger_is_refused(desk: Desk, tmp_path: Path) -> None:
    """What it is ahead by is no upload that the ledger accepted: neither never heard of, nor only opened."""
    desk.upload("one", names(100))
    desk.ingest.open("set", "two").add_elements(1, names(10, 5000))
    older = (tmp_path / LEDGER_NAME).read_bytes()
    session = desk.ingest.open("set", "two")
    desk.ingest.finish(session, 10, b"")
    desk.close()
    (tmp_path / LEDGER_NAME).write_bytes(older)
    again = Desk(tmp_path, desk.anchor, desk.store)
    with pytest.raises(StateCorrupted, match=REFUSAL):
        again.publish("r")
    again.close()


def test_a_crash_between_vector_and_ledger_is_no_other_age(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once and again: with two uploads accepted, whichever is merged first, the file is ahead by one, then by two."""
    desk.upload("before", names(100))
    for number in (1, 2):
        session = desk.ingest.open("set", f"waiting {number}")
        session.add_elements(1, names(10, 5000 * number))
        session.check_finish(10, b"")
        session.close()
    for upload in desk.ledger.all_open_uploads():
        desk.ledger.accept_upload(1, upload.upload_id, 10)
    in_order = SqliteLedger.merging_uploads
    roots = {desk.files.vector_root(1, 1 << 17)}
    for step in (1, -1):
        desk.close()
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLedger, "finish_upload", crash)
            patch.setattr(SqliteLedger, "merging_uploads", lambda *given, step=step: in_order(*given)[::step])
            with pytest.raises(Crash):
                Desk(tmp_path, desk.anchor, desk.store)
        roots.add(desk.files.vector_root(1, 1 << 17))
    assert len(roots) == 3
    again = restarted(desk, tmp_path)
    assert again.ledger.merging_uploads() == []
    assert again.ledger.finished_uploads(1) == 3
    assert again.ledger.vector_record(1) == VectorRecord(again.files.vector_root(1, 1 << 17))
    assert again.publish("r").sequence == 1
    again.close()


def test_a_pair_from_before_an_accepted_upload_waits_for_no_other(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an upload waits between accepted and finished, an older pair is as wrong as ever."""
    desk.upload("one", names(100))
    older = kept(tmp_path, "older")
    desk.upload("two", names(100, 5000))
    session = desk.ingest.open("set", "three")
    session.add_elements(1, names(10, 9000))
    with monkeypatch.context() as patch:
        patch.setattr(desk.ledger, "finish_upload", crash)
        with pytest.raises(Crash):
            desk.ingest.finish(session, 10, b"")
    ahead = kept(tmp_path, "ahead")
    restore(tmp_path, older)
    with pytest.raises(StateCorrupted, match=REFUSAL):
        desk.publish("r")
    restore(tmp_path, ahead)
    assert desk.publish("r").sequence == 1


def test_ahead_of_an_older_ledger_is_not_ahead_of_this_one(desk: Desk, tmp_path: Path) -> None:
    """Of two accepted uploads one is in the older pair and still waits; the other was finished since, and is not in it."""
    length = 1 << 17
    for upload_id in ("waits", "finished"):
        desk.ledger.open_upload(1, upload_id)
        desk.ledger.accept_upload(1, upload_id, 1)
    for place, upload_id in enumerate(("waits", "finished")):
        record = desk.ledger.vector_record(1)
        with desk.files.change_vector(1, length, upload_id, record, lambda: {0}, None) as vector:
            vector[place] = 1
        assert next(desk.files.read_vector(1, length, record))[place] == 1
        if not place:
            older = kept(tmp_path, "older")
    desk.ledger.finish_upload(1, "finished", 1, desk.files.vector_root(1, length))
    record = desk.ledger.vector_record(1)
    assert next(desk.files.read_vector(1, length, record))[:2].tolist() == [1, 1]
    restore(tmp_path, older)
    with pytest.raises(StateCorrupted, match=REFUSAL):
        desk.files.read_vector(1, length, record)


# Folders from before the ledger knew


def without_roots(state: Path) -> None:
    """The ledger as its first version was."""
    with closing(sqlite3.connect(state / LEDGER_NAME, isolation_level=None)) as plain:
        plain.execute("DROP TABLE vector_roots")
        plain.execute("PRAGMA user_version = 1")


def crashed_before_adopting(state: Path) -> None:
    """Migrated, and then the process died."""
    with closing(sqlite3.connect(state / LEDGER_NAME, isolation_level=None)) as plain:
        plain.execute("DELETE FROM vector_roots")


def first_sums(path: Path) -> None:
    """The checksums as the first version of their file had them."""
    plain = path.read_bytes()[:-32]
    first = b"vsvsums1" + plain[8:64] + plain[128:]
    path.write_bytes(first + hashlib.sha256(first).digest())


@pytest.mark.parametrize("downgrade", [without_roots, crashed_before_adopting])
@pytest.mark.parametrize("waiting", [False, True])
def test_an_older_folder_is_brought_forward_and_bound(
    tmp_path: Path, downgrade: Callable[[Path], None], waiting: bool
) -> None:
    """What its vectors hold then is taken on, also of sets without an upload and of one whose merge was not yet finished."""
    state, length = tmp_path / "state", 8192
    with open_state(state, StoppedClock()) as opened:
        for set_id, name in ((1, "used"), (2, "unused")):
            add_set(opened.ledger, name)
            opened.files.create_vector(set_id, length)
        zeros = kept(state, "zeros")
        opened.ledger.open_upload(1, "u")
        opened.ledger.accept_upload(1, "u", 5)
        with changing(opened.files, 1, length) as vector:
            vector[:] = 0xA5
        root = opened.files.vector_root(1, length)
        if not waiting:
            opened.ledger.finish_upload(1, "u", 5, root)
    downgrade(state)
    for set_id in (1, 2):
        first_sums(state / "vectors" / f"{set_id}.sums")
    with open_state(state, StoppedClock()) as opened:
        record = opened.ledger.vector_record(1)
        assert record == VectorRecord(root, ("u",) if waiting else ())
        empty = opened.ledger.vector_record(2)
        assert empty == VectorRecord(hashlib.sha256(sums_of_zeros(length)).digest())
        assert next(opened.files.read_vector(1, length, record)).tobytes() == b"\xa5" * length
        assert next(opened.files.read_vector(2, length, empty)).tobytes() == bytes(length)
        if waiting:
            with opened.files.change_vector(1, length, "u", record, lambda: {0}, None) as vector:
                vector[:] |= 0xA5
            opened.ledger.finish_upload(1, "u", 0, opened.files.vector_root(1, length))
    restore(state, zeros)
    with open_state(state, StoppedClock()) as opened, pytest.raises(StateCorrupted, match=REFUSAL):
        opened.files.read_vector(1, length, opened.ledger.vector_record(1))
