"""The state folder: private, versioned, held by one process; and the parts that `open_state` puts together."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import StoppedClock, add_set, charge_of, digests_of, publish

from veilset.core.params import Operation
from veilset.errors import FailedPrecondition, StateCorrupted, VeilsetError
from veilset_server.state.run_file import write_run
from veilset_server.state.runs import MANY_RUNS
from veilset_server.state.state_folder import (
    FORMAT_NAME,
    FORMAT_VERSION,
    LOCK_NAME,
    SUBFOLDERS,
    OpenedState,
    StateFolder,
    open_state,
)

CLOCK = StoppedClock()
NOW = FORMAT_VERSION


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder in use: one set with elements, an open upload, a release."""
    path = tmp_path / "state"
    with open_state(path, CLOCK) as opened:
        stored = add_set(opened.ledger)
        for number in range(MANY_RUNS):
            held(opened, stored.set_id, f"folded {number}")
        opened.runs.compact(stored.set_id)
        opened.runs.discard()
        held(opened, stored.set_id, "finished")
        opened.runs.open_spool(opened.ledger.open_upload(stored.set_id, "open", 0, Operation.ADD)).close()
        opened.artefacts.write(stored.set_id, 1, iter([b"noise"]), 5)
        publish(opened.ledger, stored, "r", charge_of())
    return path


def held(opened: OpenedState, set_id: int, upload_id: str) -> None:
    """A finished upload of five digests."""
    upload = opened.ledger.open_upload(set_id, upload_id, 0, Operation.ADD)
    spool = opened.runs.open_spool(upload)
    spool.append(1, digests_of(upload.serial))
    spool.sync()
    spool.close()
    opened.ledger.finish_upload(upload, 5, spool.checksum())


def files_of(path: Path) -> dict[str, bytes]:
    """Every file's content, by name."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def opens(path: Path) -> bool:
    """Whether the folder opens; a refusal has to name it or the file."""
    try:
        with open_state(path, CLOCK):
            return True
    except VeilsetError as error:
        refusal = error
    assert str(path) in refusal.message or refusal.details.get("file", "?") in refusal.message, refusal.message
    return False


def test_everything_in_it_is_private(tmp_path: Path) -> None:
    """Folders 0700 and files 0600, whatever the umask and whatever the folder was before."""
    path = tmp_path / "state"
    path.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        with open_state(path, CLOCK) as opened:
            add_set(opened.ledger)
            held(opened, 1, "u")
            write_run(path / "runs" / "1-1.run", 1, 1, iter([]))
            opened.artefacts.write(1, 1, iter([b"noise"]), 5)
            with opened.ledger._file.transaction() as transaction:  # while the journal is there
                transaction.execute("INSERT INTO leftovers VALUES ('x')")
                assert (path / "ledger.db-journal").exists()
                found = {entry.name: stat.S_IMODE(entry.lstat().st_mode) for entry in (path, *path.rglob("*"))}
    finally:
        os.umask(before)
    folders = {"state", *SUBFOLDERS}
    assert found == {name: 0o700 if name in folders else 0o600 for name in found}
    assert len(found) == len(folders) + len(
        ("lock", "format.json", "reserve", "ledger.db", "journal", "run", "spool", "artefact")
    )


def test_a_second_server_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    """Across processes; and the lock goes with its process, also by SIGKILL."""
    path = tmp_path / "state"
    script = (
        "import sys; from pathlib import Path; from veilset_server.state.state_folder import StateFolder;"
        "folder = StateFolder(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FailedPrecondition, match=f"in use by process {holder.pid}") as refusal:
            StateFolder(path)
        assert refusal.value.details == {"folder": str(path), "pid": str(holder.pid)}
        holder.kill()
    StateFolder(path).close()


def test_the_folder_is_held_within_one_process_too(tmp_path: Path) -> None:
    """Until it is closed, or opening it failed."""
    with StateFolder(tmp_path), pytest.raises(FailedPrecondition, match="in use"):
        StateFolder(tmp_path)
    form = (tmp_path / FORMAT_NAME).read_text()
    for _ in range(2):
        (tmp_path / FORMAT_NAME).write_text(form.replace(f'"version": {NOW}', '"version": 9'))
        with pytest.raises(StateCorrupted, match="version 9"):
            StateFolder(tmp_path)
    (tmp_path / FORMAT_NAME).write_text(form)
    StateFolder(tmp_path).close()


def test_a_full_state_folder_opens_again(state: Path) -> None:
    """With everything in it, and without a change to any file but the lock."""
    before = files_of(state)
    with open_state(state, CLOCK) as opened:
        assert opened.folder.ready
        assert opened.ledger.get_account("guests").charges == 1
        assert opened.artefacts.list() == [(1, 1)]
    after = files_of(state)
    assert {name for name in before if before[name] != after[name]} <= {LOCK_NAME}
    assert before.keys() == after.keys()


@pytest.mark.parametrize("content", ["photos", "ledger.db", "runs"])
def test_a_folder_with_other_content_is_not_taken_over(tmp_path: Path, content: str) -> None:
    """Neither somebody else's nor one that lost its format file."""
    (tmp_path / content).mkdir()
    with pytest.raises(FailedPrecondition if content == "photos" else StateCorrupted, match=str(tmp_path)):
        StateFolder(tmp_path)
    assert not (tmp_path / FORMAT_NAME).exists()


def test_a_fresh_volume_is_an_empty_folder(tmp_path: Path) -> None:
    """lost+found is the file system's; a file where the folder should be is refused."""
    (tmp_path / "lost+found").mkdir()
    with open_state(tmp_path, CLOCK) as opened:
        assert opened.folder.ready
    (tmp_path / "file").touch()
    with pytest.raises(FailedPrecondition, match="not a folder"):
        StateFolder(tmp_path / "file")


@pytest.mark.parametrize("step", ["format", "ledger", "ready"])
def test_a_crash_while_the_folder_is_made_leaves_one_that_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nothing was acknowledged yet, so what is half there may be made anew."""

    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        match step:
            case "format":
                patched.setattr("veilset_server.state.state_folder.write_format", crash)
            case "ledger":
                patched.setattr("veilset_server.state.ledger.sqlite_ledger.make_schema", crash)
            case "ready":
                patched.setattr(StateFolder, "mark_ready", crash)
        with pytest.raises(Crash), open_state(tmp_path / "state", CLOCK):
            pass
    with open_state(tmp_path / "state", CLOCK) as opened:
        assert opened.folder.ready
        assert opened.ledger.list_sets("", 1) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give a folder to another user")
@pytest.mark.parametrize(("mode", "accepted"), [(0o700, True), (0o2770, True), (0o755, False), (0o701, False)])
def test_a_folder_of_another_user_has_to_be_closed_to_all_others(tmp_path: Path, mode: int, accepted: bool) -> None:
    """As container platforms mount volumes; we cannot tighten it, so it is refused if it is open."""
    path = tmp_path / "state"
    path.mkdir()
    os.chown(path, 12345, -1)
    path.chmod(mode)
    if accepted:
        StateFolder(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == mode
    else:
        with pytest.raises(FailedPrecondition, match="private"):
            StateFolder(path)


# Damage


@pytest.mark.parametrize("name", ["format.json", "ledger.db", "runs", "spools", "artefacts"])
def test_a_missing_part_is_named_and_not_made_anew(state: Path, name: str) -> None:
    """In a folder that was in use, whatever is missing is damage."""
    part = state / name
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink()
    with pytest.raises(StateCorrupted, match=part.name), open_state(state, CLOCK):
        pass
    assert not part.exists()


@settings(
    max_examples=120,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 1 << 20), kind=st.sampled_from(["flip", "cut", "later version", "not ready"]))
def test_a_damaged_format_file_is_refused(state: Path, place: int, kind: str) -> None:
    """Any bit, any length; nothing else in the folder is touched by the refusal."""
    path = state / FORMAT_NAME
    sound, before = path.read_bytes(), files_of(state)
    try:
        match kind:
            case "flip":
                damaged = bytearray(sound)
                damaged[place // 8 % len(sound)] ^= 1 << place % 8
                path.write_bytes(damaged)
            case "cut":
                path.write_bytes(sound[: place % len(sound)])
            case "later version":
                path.write_text(json.dumps(json.loads(sound) | {"version": NOW + 1 + place}))
            case "not ready":
                path.write_text(json.dumps(json.loads(sound) | {"ready": place}))
        if json_equal(path.read_bytes(), sound):
            return  # the flip made other white space
        assert not opens(state)
    finally:
        path.write_bytes(sound)
    assert {name: data for name, data in files_of(state).items() if name != LOCK_NAME} == {
        name: data for name, data in before.items() if name != LOCK_NAME
    }


def json_equal(data: bytes, sound: bytes) -> bool:
    """Whether the bytes mean the same."""
    try:
        return bool(json.loads(data) == json.loads(sound)) and b"true" in data
    except ValueError:
        return False


def test_files_of_two_folders_do_not_mix(state: Path, tmp_path: Path) -> None:
    """A ledger of another folder, however sound, is not this one's."""
    with open_state(tmp_path / "other", CLOCK):
        pass
    shutil.copy(tmp_path / "other" / "ledger.db", state / "ledger.db")
    with pytest.raises(StateCorrupted, match="another state folder"), open_state(state, CLOCK):
        pass


def test_runs_beside_an_older_ledger_are_set_aside(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One way in which a restored ledger shows; nothing is deleted, and the log names the files."""
    older = (state / "ledger.db").read_bytes()
    with open_state(state, CLOCK) as opened:
        held(opened, 1, "newer")
    newest = max((state / "spools").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    content = newest.read_bytes()
    (state / "ledger.db").write_bytes(older)
    with open_state(state, CLOCK) as opened:
        assert len(opened.ledger.items(1)) == 2
    assert (state / "quarantine" / newest.name).read_bytes() == content
    assert newest.name in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["runs", "spools"])
@pytest.mark.parametrize("length", [None, 0, 40])
def test_a_damaged_run_is_its_own_sets_trouble(
    state: Path, folder: str, length: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing or shorter: the folder opens, the log names the file, and nothing is made anew in its place."""
    path = max((state / folder).iterdir(), key=lambda found: found.stat().st_size)
    if length is None:
        path.unlink()
    else:
        os.truncate(path, length)
    for _ in range(2):
        with open_state(state, CLOCK) as opened:
            assert opened.refusing == {1}
            with pytest.raises(StateCorrupted, match=f"{folder}/{path.name}"), opened.runs.sorted_chunks(1) as chunks:
                list(chunks)
        assert f"file={folder}/{path.name}" in capsys.readouterr().out
    assert (path.stat().st_size if path.exists() else None) == length


def test_what_a_crash_left_between_ledger_and_files_is_carried_through(tmp_path: Path) -> None:
    """What a deleted set left goes; half-made files go."""
    path = tmp_path / "state"
    with open_state(path, CLOCK) as opened:
        add_set(opened.ledger, "first")
        held(opened, 1, "finished")
        opened.runs.open_spool(opened.ledger.open_upload(1, "open", 0, Operation.ADD)).close()
        opened.ledger.delete_set("first")
        add_set(opened.ledger, "second")
        held(opened, 2, "u")
    for name in ("artefacts/1-1.noisy.tmp", "runs/2-5.run.tmp", "spools/2-9.spool.tmp"):
        (path / name).touch()
    with open_state(path, CLOCK):
        pass
    kept = {str(file.relative_to(path)) for folder in SUBFOLDERS for file in (path / folder).iterdir()}
    assert kept == {"spools/2-1.spool"}


def test_open_state_lets_the_folder_go_when_a_part_is_refused(state: Path) -> None:
    """So that the operator's next try is not told that it is in use."""
    ledger = state / "ledger.db"
    sound = ledger.read_bytes()
    ledger.write_bytes(b"")
    assert not opens(state)
    ledger.write_bytes(sound)
    assert opens(state)
