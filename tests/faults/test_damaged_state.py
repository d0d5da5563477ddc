"""Damaged files in the state folder: refused with one line that names the file, by the start or, where only one set needs the
file, by that set; or, for a pending release, lost and still charged. Never a silent reset."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ledger_copy import read_ledger
from stricken import wait_for

from harness.fault_tally import Trying
from harness.programs import veilset
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector, redis_content
from veilset._reader.reader import open_view
from veilset.errors import StateCorrupted, Unavailable

DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one bit": lambda path: flip(path, middle(path)),
    "first bit": lambda path: flip(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
}
# File → damages that need not be noticed. SQLite and a spool know how long they are; a spool's head is no content.
# Without an anchor Redis knows the rest; one that is cut is one whose last write a crash cut short, and the ledger knows more.
FILES = {
    "state/ledger.db": ("longer",),
    "state/format.json": ("longer",),
    "state/signing.pem": (),
    "state.anchor": ("gone", "longer", "cut in half"),
}
FILES_OF_A_SET: dict[str, tuple[str, ...]] = {
    "state/spools/*.spool": ("longer", "first bit"),
}

ELEMENTS = [b"element %d" % number for number in range(5000)]
"""More than stay in the ledger."""


def middle(path: Path) -> int:
    """A place that means something: half of SQLite's file is room for more, which a start need not look at."""
    return path.read_bytes().rfind(b"published") if path.name == "ledger.db" else path.stat().st_size // 2


def flip(path: Path, place: int) -> None:
    """One bit of a byte; a digit stays a digit, mostly."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """For all of them."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, redis: RedisServer) -> Path:
    """A folder with a state folder and its anchor: a set with a run, a release, a set without."""
    folder = tmp_path_factory.mktemp("healthy")
    with running(ServiceProcess(folder / "state", ("--redis", redis.url))) as process:
        with process.connect() as service:
            service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=5)
            service.add("s", [element.decode() for element in ELEMENTS])
            assert service.publish("s", request_id="1").state == "published"
            service.create_set("other", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=20)
        process.kill()
    return folder


@pytest.mark.faults
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named_and_refused(
    healthy: Path, tmp_path: Path, redis: RedisServer, file: str, trying: Trying
) -> None:
    """By a start that says one line and changes nothing; with the file as it was, all goes on."""
    shutil.copytree(healthy / "state", tmp_path / "state")
    shutil.copy(healthy / "state.anchor", tmp_path)
    (path,) = tmp_path.glob(file)
    good = path.read_bytes()
    serve = ("serve", "--state", tmp_path / "state", "--port", "0", "--redis", redis.url)
    for damage, apply in DAMAGES.items():
        if damage in FILES[file]:
            continue
        with trying(f"damaged {file.removeprefix('state/')}"):
            apply(path)
            bad = path.read_bytes() if path.exists() else None
            complaint = veilset(*serve).complaint()
            assert path.name in complaint, (damage, complaint)
            assert (path.read_bytes() if path.exists() else None) == bad, f"{damage}: the start changed it"
            path.write_bytes(good)
    with (
        running(ServiceProcess(tmp_path / "state", ("--redis", redis.url))) as process,
        process.connect() as service,
    ):
        assert service.publish("s", request_id="1").sequence == 1
        assert service.budget("s").charges == 1


@pytest.mark.faults
@pytest.mark.parametrize("file", FILES_OF_A_SET)
def test_a_damaged_file_of_one_set_is_named_by_that_set_alone(
    healthy: Path, tmp_path: Path, redis: RedisServer, file: str, trying: Trying
) -> None:
    """Its set publishes nothing, the other does; the file stays as it is, and once it is put right, all goes on with nothing
    lost."""
    shutil.copytree(healthy / "state", tmp_path / "state")
    shutil.copy(healthy / "state.anchor", tmp_path)
    redis.command("FLUSHALL")  # what the service with the other file published
    (path,) = tmp_path.glob(file)
    good = path.read_bytes()
    for number, (damage, apply) in enumerate(DAMAGES.items()):
        if damage in FILES_OF_A_SET[file]:
            continue
        with trying(f"damaged {file.removeprefix('state/')}"):
            apply(path)
            bad = path.read_bytes() if path.exists() else None
            with (
                running(ServiceProcess(tmp_path / "state", ("--redis", redis.url))) as process,
                process.connect() as service,
            ):
                for _ in range(2):
                    with pytest.raises(StateCorrupted) as refused:
                        service.publish("s", request_id="new")
                    assert path.name in refused.value.message, damage
                assert service.publish("s", request_id="1").sequence == 1  # what was made does not need the file
                assert service.add("other", [f"{number}"]).elements == 1
                assert service.publish("other", request_id=f"{number}").state == "published"
                refusals = {record.get("file") for record in process.log_records() if record["event"] == "set refuses"}
                assert refusals <= {str(path.relative_to(tmp_path / "state"))}
            assert (path.read_bytes() if path.exists() else None) == bad, f"{damage}: it was changed"
            path.write_bytes(good)
    with (
        running(ServiceProcess(tmp_path / "state", ("--redis", redis.url))) as process,
        process.connect() as service,
    ):
        shape = shape_of_set(service.get_set("s"))
        assert raw_vector(process.state, "s") == expected_vector(shape, ELEMENTS)
        assert service.publish("s", request_id="new").sequence == 2


@pytest.mark.parametrize(
    "damage",
    [damage if damage == "cut in half" else pytest.param(damage, marks=pytest.mark.faults) for damage in DAMAGES],
)
def test_a_pending_release_whose_artefact_is_damaged_is_lost(
    tmp_path: Path, start_redis: Callable[..., RedisServer], damage: str, trying: Trying
) -> None:
    """Charged, never visible, and the service goes on with the next."""
    redis = start_redis()
    snare = tmp_path / "snare.json"
    program = (str(Path(__file__).with_name("killing_service.py")), str(snare))
    process = ServiceProcess(tmp_path / "state", ("--redis", redis.url), program)
    with trying("damaged artefact of a pending release"), running(process), process.connect() as service:
        service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=2)
        service.add("s", ["a", "b"])
        snare.write_text('{"step": "store.upload", "when": "before", "call": 1, "id": 1}')
        with pytest.raises(Unavailable):
            service.publish("s", request_id="1")
        process.kill()
        snare.unlink()
        (artefact,) = (tmp_path / "state" / "artefacts").iterdir()
        DAMAGES[damage](artefact)
        process.start()
        assert wait_for(lambda: read_ledger(process.state).charges[0].state == "lost", 10.0)
        assert "veilset:s:latest" not in redis_content(redis.url)
        with process.connect() as again:
            assert again.publish("s", request_id="1").state == "lost"
            assert again.publish("s", request_id="2").state == "published"
            assert again.budget("s").epsilon_left == 0
        assert open_view(redis.url, "s").header.sequence == 2


@pytest.mark.faults
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_published_release_whose_artefact_is_damaged_is_never_restored_wrong(
    tmp_path: Path,
    start_service: Callable[..., ServiceProcess],
    start_redis: Callable[..., RedisServer],
    damage: str,
    trying: Trying,
) -> None:
    """It is served from Redis as long as Redis has it; after a loss there, readers find nothing rather than something else."""
    redis = start_redis()
    process = start_service("--redis", redis.url, "--reconcile-seconds", "0.2")
    with trying("damaged artefact of a published release"), process.connect() as service:
        service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=2)
        service.add("s", ["a", "b"])
        service.publish("s", request_id="1")
        (artefact,) = (process.state / "artefacts").iterdir()
        DAMAGES[damage](artefact)
        assert open_view(redis.url, "s").header.sequence == 1
        redis.command("DEL", "veilset:s:1:bits:0")
        for _ in range(3):
            service.reconcile()
        assert "veilset:s:1:bits:0" not in redis_content(redis.url)
        assert any(record["event"] == "cannot restore" for record in process.log_records())
        assert service.publish("s", request_id="2").state == "published"
        assert open_view(redis.url, "s").header.sequence == 2
