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
from storage_examples import UNRECORDED, StoppedClock, add_set, changing, charge_of, digests_of, publish

from veilset.errors import FailedPrecondition, StateCorrupted, VeilsetError
from veilset_server.state.folder_format import FORMAT_NAME, FORMAT_VERSION
from veilset_server.state.opened_state import open_state
from veilset_server.state.state_folder import LOCK_NAME, SUBFOLDERS, StateFolder

CLOCK = StoppedClock()
NOW = FORMAT_VERSION


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder in use: one set with elements, an open upload, a release."""
    path = tmp_path / "state"
    with open_state(path, CLOCK) as opened:
        stored = add_set(opened.ledger)
        length = stored.description.filter.vector_bytes
        opened.files.create_vector(stored.set_id, length)
        with changing(opened.files, stored.set_id, length) as vector:
            vector[:] = 0xA5
        for upload_id in ("finished", "open"):
            opened.ledger.open_upload(stored.set_id, upload_id)
            spool = opened.files.open_spool(stored.set_id, upload_id)
            spool.append(1, digests_of(1))
            spool.close()
        opened.ledger.accept_upload(stored.set_id, "finished", 5)
        opened.ledger.finish_upload(stored.set_id, "finished", 5, opened.files.vector_root(stored.set_id, length))
        opened.files.write_artefact(stored.set_id, 1, iter([b"noise"]), 5)
        publish(opened.ledger, stored, "r", charge_of())
    return path


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
            opened.files.create_vector(1, 8192)
            opened.files.open_spool(1, "u").close()
            opened.files.write_artefact(1, 1, iter([b"noise"]), 5)
            with opened.ledger._file.transaction() as transaction:  # while the journal is there
                transaction.execute("INSERT INTO accounts VALUES ('x')")
                assert (path / "ledger.db-journal").exists()
                found = {entry.name: stat.S_IMODE(entry.lstat().st_mode) for entry in (path, *path.rglob("*"))}
    finally:
        os.umask(before)
    folders = {"state", *SUBFOLDERS}
    assert found == {name: 0o700 if name in folders else 0o600 for name in found}
    assert len(found) == len(folders) + len(
        ("lock", "format.json", "ledger.db", "journal", "vector", "sums", "spool", "artefact")
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
    for _ in range(2):
        with pytest.raises(StateCorrupted, match="later"):
            StateFolder(tmp_path, version=0)
    StateFolder(tmp_path).close()


def test_a_full_state_folder_opens_again(state: Path) -> None:
    """With everything in it, and without a change to any file but the lock."""
    before = files_of(state)
    with open_state(state, CLOCK) as opened:
        assert opened.folder.ready
        assert opened.ledger.get_account("guests").charges == 1
        assert opened.files.artefacts() == [(1, 1)]
    after = files_of(state)
    assert {name for name in before if before[name] != after[name]} <= {LOCK_NAME}
    assert before.keys() == after.keys()


@pytest.mark.parametrize("content", ["photos", "ledger.db", "vectors"])
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
                patched.setattr("veilset_server.state.ledger.sqlite_ledger.upgrade", crash)
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


# Versions


def test_an_older_folder_is_brought_forward_step_by_step(state: Path) -> None:
    """Each step once, the version behind it; then the older program refuses it."""
    ran: list[str] = []

    def to_next(path: Path) -> None:
        ran.append("first")
        (path / "added").touch()

    migrations = {NOW: to_next, NOW + 1: lambda _: ran.append("second")}
    for _ in range(2):
        StateFolder(state, migrations, version=NOW + 2).close()
    assert ran == ["first", "second"]
    assert json.loads((state / FORMAT_NAME).read_text())["version"] == NOW + 2
    assert (state / "added").exists()
    with pytest.raises(StateCorrupted, match=f"version {NOW + 2} is later than {NOW}"):
        StateFolder(state)


def test_a_migration_that_a_crash_interrupted_runs_again(state: Path) -> None:
    """The version rises behind the step, not before."""
    runs: list[int] = []

    def fail_once(_: Path) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        StateFolder(state, {NOW: fail_once}, version=NOW + 1)
    StateFolder(state, {NOW: fail_once}, version=NOW + 1).close()
    assert len(runs) == 2


def test_a_version_from_which_no_migration_leads_is_refused(state: Path) -> None:
    """Named, and left as it is."""
    with pytest.raises(StateCorrupted, match=f"no migration leads on from version {NOW}"):
        StateFolder(state, {}, version=NOW + 1)
    assert opens(state)


# Damage


@pytest.mark.parametrize("name", ["format.json", "ledger.db", "vectors", "spools", "artefacts"])
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


def test_an_older_ledger_beside_newer_vectors_is_refused(state: Path) -> None:
    """One way in which a restored ledger shows: a vector whose set it never heard of."""
    older = (state / "ledger.db").read_bytes()
    with open_state(state, CLOCK) as opened:
        opened.files.create_vector(add_set(opened.ledger, "newer").set_id, 8192)
    (state / "ledger.db").write_bytes(older)
    with pytest.raises(StateCorrupted, match=r"vectors/2\.bits"), open_state(state, CLOCK):
        pass
    assert (state / "vectors" / "2.bits").exists()


@pytest.mark.parametrize("name", ["1.bits", "1.sums"])
@pytest.mark.parametrize("length", [None, 0, 1, 9000])
def test_a_damaged_vector_is_its_own_sets_trouble(
    state: Path, name: str, length: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, longer or shorter: the folder opens, the log names the file, and nothing is made anew in its place."""
    path = state / "vectors" / name
    if length is None:
        path.unlink()
    else:
        os.truncate(path, length)
    for _ in range(2):
        with open_state(state, CLOCK) as opened, pytest.raises(StateCorrupted, match=f"vectors/{name}"):
            opened.files.read_vector(1, 8192, UNRECORDED)
        assert f"file=vectors/{name}" in capsys.readouterr().out
    assert (path.stat().st_size if path.exists() else None) == length


def test_what_a_crash_left_between_ledger_and_files_is_carried_through(tmp_path: Path) -> None:
    """A set whose vector was not made yet gets it; what a deleted set left goes; half-made files go."""
    path = tmp_path / "state"
    with open_state(path, CLOCK) as opened:
        add_set(opened.ledger, "first")
        opened.files.create_vector(1, 8192)
        opened.files.open_spool(1, "u").close()
        opened.ledger.delete_set("first")
        add_set(opened.ledger, "second")
    (path / "artefacts" / "1-1.noisy.tmp").touch()
    with open_state(path, CLOCK):
        pass
    kept = {str(file.relative_to(path)) for folder in SUBFOLDERS for file in (path / folder).iterdir()}
    assert kept == {"vectors/2.bits", "vectors/2.sums"}
    assert (path / "vectors" / "2.bits").read_bytes() == bytes(8192)


def test_open_state_lets_the_folder_go_when_a_part_is_refused(state: Path) -> None:
    """So that the operator's next try is not told that it is in use."""
    ledger = state / "ledger.db"
    sound = ledger.read_bytes()
    ledger.write_bytes(b"")
    assert not opens(state)
    ledger.write_bytes(sound)
    assert opens(state)
