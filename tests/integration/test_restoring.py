"""What Redis lost or changed is found and written again; the pointer moves only to what was found whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, names
from structlog.testing import capture_logs

from harness.redis_server import RedisServer
from harness.vectors import redis_content
from veilset._reader.reader import open_view
from veilset.core.release.signing import open_manifest
from veilset.errors import NotFound, ReleaseRejected, StateRolledBack, Unavailable
from veilset_server.records import ReleaseState
from veilset_server.redis.store import RedisStore
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases import delivery
from veilset_server.usecases.restoring import ChunkRotation, Outage

CHUNKS = 3
BITS = 2 * (8 << 20) + 77
GRACE_SECONDS = 600


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """The Redis that things happen to."""
    return start_redis()


@pytest.fixture
def desk(tmp_path: Path, redis: RedisServer) -> Iterator[Desk]:
    """A service with two releases of three chunks in Redis."""
    store = RedisStore(redis.url, timeout_seconds=5.0)
    found = Desk(tmp_path, MemoryAnchor(), store)
    found.create(hashes=1, budget=20, bits=BITS)
    found.upload("one", names(100))
    for request_id in ("1", "2"):
        found.publish(request_id)
        found.delivery.deliver_pending()
    yield found
    found.close()
    store.close()


def tamper(redis: RedisServer, key: str, place: int = 1000) -> None:
    """Change bytes of a value, not its length."""
    redis.command("SETRANGE", key, place, "tampered")


def damage_artefact(folder: Path, sequence: int) -> None:
    """Change a bit of the last chunk's bits."""
    path = folder / "artefacts" / f"1-{sequence}.noisy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("key", [f"veilset:set:{s}:bits:{i}" for s in (1, 2) for i in range(CHUNKS)])
def test_changed_content_of_the_right_length_is_restored(desk: Desk, redis: RedisServer, key: str) -> None:
    """At once by a comparison of everything, on demand."""
    good = redis_content(redis.url)
    tamper(redis, key, place=0)
    assert desk.delivery.reconcile("set", whole=True) == (2, 1, ())
    assert redis_content(redis.url) == good
    assert desk.delivery.reconcile(whole=True) == (2, 0, ())


def test_periodic_passes_compare_all_content_in_turn(
    desk: Desk, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk each here, so the sixth pass has seen all six; lengths and manifests are compared in each."""
    monkeypatch.setattr(delivery, "CHUNKS_AT_A_TIME", 1)
    passes = delivery.Delivery(desk.ledger, desk.artefacts, desk.store)
    good = redis_content(redis.url)
    for sequence in (1, 2):
        for index in range(CHUNKS):
            tamper(redis, f"veilset:set:{sequence}:bits:{index}", place=0)
    assert [passes.reconcile()[1] for _ in range(2 * CHUNKS)] == [1] * (2 * CHUNKS)
    assert redis_content(redis.url) == good
    tamper(redis, "veilset:set:2:manifest", place=3)
    redis.command("APPEND", "veilset:set:1:bits:2", "x")
    assert passes.reconcile() == (2, 2, ())
    assert redis_content(redis.url) == good


def test_a_turn_comes_to_all_however_releases_come_and_go() -> None:
    """In as many turns as the chunks need, no chunk twice before; one that goes meanwhile stops nothing."""
    rotation = ChunkRotation(4)
    releases = [("a", 9, 3), ("a", 10, 3), ("b", 1, 5), ("empty", 1, 0)]
    turns = [rotation.next_chunks(releases) for _ in range(3)]
    assert [len(turn) for turn in turns] == [4, 4, 4]
    assert len(set.union(*turns)) == 11
    assert rotation.next_chunks([]) == set()
    assert len(rotation.next_chunks(releases[2:])) == 4
    assert ChunkRotation(4).next_chunks(releases[:1]) == {("a", 9, 0), ("a", 9, 1), ("a", 9, 2)}


def test_a_flushed_redis_has_the_newest_first(desk: Desk, redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the pointer does not come by the older release, which readers who saw the newer one would refuse."""
    good = redis_content(redis.url)
    redis.command("FLUSHALL")
    moves: list[int] = []
    move = desk.store.move_pointer

    def recorded(name: str, sequence: int) -> None:
        moves.append(sequence)
        move(name, sequence)

    monkeypatch.setattr(desk.store, "move_pointer", recorded)
    assert desk.delivery.reconcile() == (2, 9, ())
    assert moves == [2]
    assert redis_content(redis.url) == good


def test_a_damaged_artefact_is_never_pointed_at(desk: Desk, redis: RedisServer, tmp_path: Path) -> None:
    """Where Redis lost the newest too, readers get the one before, whole; never a mixture."""
    damage_artefact(tmp_path, 2)
    redis.command("FLUSHALL")
    for whole in (False, True):
        desk.delivery.reconcile(whole=whole)
        assert redis.command("GET", "veilset:set:latest") == b"1"
    assert open_view(redis.url, "set").header.sequence == 1
    desk.publish("3")
    desk.delivery.deliver_pending()
    assert open_view(redis.url, "set").header.sequence == 3


def remove_artefact(folder: Path, sequence: int) -> None:
    """The file is gone."""
    (folder / "artefacts" / f"1-{sequence}.noisy").unlink()


def cut_artefact(folder: Path, sequence: int) -> None:
    """Its last byte is gone."""
    path = folder / "artefacts" / f"1-{sequence}.noisy"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [damage_artefact, remove_artefact, cut_artefact])
@pytest.mark.parametrize("loss", [("DEL", "veilset:set:2:bits:2"), ("SETRANGE", "veilset:set:2:bits:2", 0, "tampered")])
def test_what_cannot_be_restored_is_told_until_it_is_whole(
    desk: Desk, redis: RedisServer, tmp_path: Path, damage: Callable[[Path, int], None], loss: tuple[str | int, ...]
) -> None:
    """By the pass, and in the log with the file's name; by `damaged` also after passes that did not look at its content."""
    desk.delivery = delivery.Delivery(desk.ledger, desk.artefacts, desk.store)
    path = tmp_path / "artefacts" / "1-2.noisy"
    good = path.read_bytes()
    damage(tmp_path, 2)
    assert desk.delivery.reconcile(whole=True).unrestorable == ()  # Redis has it whole, and readers read
    redis.command(*loss)
    with capture_logs() as logs:
        assert desk.delivery.reconcile(whole=True) == (2, 0, (("set", 2),))
    (told,) = [record for record in logs if record["event"] == "cannot restore"]
    assert (told["set"], told["sequence"], told["file"]) == ("set", 2, "artefacts/1-2.noisy")
    desk.delivery._rotation.next_chunks = lambda releases: set()  # type: ignore[method-assign]
    desk.delivery.reconcile()
    assert desk.delivery.damaged == 1
    desk.delivery.reconcile("another")
    assert desk.delivery.damaged == 1
    path.write_bytes(good)
    assert desk.delivery.reconcile(whole=True) == (2, 1, ())
    assert desk.delivery.damaged == 0


@pytest.mark.parametrize("key", ["bits:0", "bits:1", "manifest"])
def test_what_is_whole_is_restored_beside_what_is_damaged(
    desk: Desk, redis: RedisServer, tmp_path: Path, key: str
) -> None:
    """The artefact's last chunk is damaged, which Redis has; a manifest lies in the ledger."""
    good = redis_content(redis.url)
    damage_artefact(tmp_path, 2)
    redis.command("DEL", f"veilset:set:2:{key}")
    assert desk.delivery.reconcile() == (2, 1, ())
    assert redis_content(redis.url) == good


def test_what_was_retired_or_deleted_is_no_longer_damaged(desk: Desk, redis: RedisServer, tmp_path: Path) -> None:
    """Nobody misses it."""
    for leave in (lambda: [desk.publish(name) for name in "34"], lambda: desk.ledger.delete_set("set")):
        sequence = desk.ledger.next_sequence("set") - 1
        damage_artefact(tmp_path, sequence)
        redis.command("DEL", f"veilset:set:{sequence}:bits:{CHUNKS - 1}")
        assert desk.delivery.reconcile().unrestorable == (("set", sequence),)
        leave()
        desk.delivery.deliver_pending()
        desk.delivery.reconcile()
        assert desk.delivery.damaged == 0


@pytest.mark.parametrize("tampered", [False, True])
def test_a_pointer_moves_to_what_redis_has_whole(
    desk: Desk, redis: RedisServer, tmp_path: Path, tampered: bool
) -> None:
    """The newest artefact is damaged and the pointer is gone: Redis's own copy is good enough, if each chunk is as signed."""
    damage_artefact(tmp_path, 2)
    redis.command("DEL", "veilset:set:latest")
    if tampered:
        tamper(redis, f"veilset:set:2:bits:{CHUNKS - 1}", place=0)
    desk.delivery.reconcile()
    assert open_view(redis.url, "set").header.sequence == (1 if tampered else 2)


def test_an_older_pointer_is_put_right(desk: Desk, redis: RedisServer) -> None:
    """As after a failover that lost the last write."""
    redis.command("SET", "veilset:set:latest", "1")
    assert desk.delivery.reconcile() == (2, 1, ())
    assert redis.command("GET", "veilset:set:latest") == b"2"


def test_a_lost_release_leaves_nothing_in_redis_for_good(desk: Desk, redis: RedisServer, tmp_path: Path) -> None:
    """Pending, and its artefact is damaged at the last chunk: what was sent before that was noticed is let go."""
    desk.publish("3")
    damage_artefact(tmp_path, 3)
    with capture_logs() as logs:
        assert desk.delivery.deliver_pending() == 0
    assert [record["file"] for record in logs if record["event"] == "release lost"] == ["artefacts/1-3.noisy"]
    assert desk.ledger.get_release("set", 3).state is ReleaseState.LOST
    left = [key for key in redis_content(redis.url) if key.startswith("veilset:set:3:")]
    assert len(left) == CHUNKS - 1
    assert all(0 < redis.command("TTL", key) <= GRACE_SECONDS for key in left)
    assert redis.command("GET", "veilset:set:latest") == b"2"


def test_an_outage_of_a_part_does_not_stop_the_others() -> None:
    """Not for the first two sets; a third time-out in a row would only cost time. It is told in the end either way."""
    outage = Outage()
    done = []
    for name in ("a", "b"):
        with outage.of(name):
            raise Unavailable("Redis: away")
    with outage.of("c"):
        done.append("c")
    with pytest.raises(Unavailable):
        outage.raise_kept()
    with pytest.raises(Unavailable), outage.of("d"):
        raise Unavailable("Redis: away")
    assert done == ["c"]
    Outage().raise_kept()


# Releases that only Redis still knows


@pytest.fixture
def rolled_back(desk: Desk, tmp_path: Path) -> Desk:
    """The state of before releases 3 and 4 came back; Redis points at 4, and 3 is there too."""
    shutil.copy(tmp_path / LEDGER_NAME, tmp_path / "older")
    shutil.copytree(tmp_path / "artefacts", tmp_path / "older artefacts")
    for request_id in ("3", "4"):
        desk.publish(request_id)
        desk.delivery.deliver_pending()
    desk.close()
    shutil.copy(tmp_path / "older", tmp_path / LEDGER_NAME)
    shutil.rmtree(tmp_path / "artefacts")
    (tmp_path / "older artefacts").rename(tmp_path / "artefacts")
    return Desk(tmp_path, desk.anchor, desk.store)


def lasting(redis: RedisServer) -> set[int]:
    """Sequences of releases whose keys have no end; all keys of one are alike."""
    ends: dict[int, set[bool]] = {}
    for key in redis_content(redis.url):
        if not key.endswith(":latest"):
            ends.setdefault(int(key.split(":")[2]), set()).add(redis.command("TTL", key) == -1)
    assert all(len(kinds) == 1 for kinds in ends.values())
    return {sequence for sequence, kinds in ends.items() if kinds == {True}}


def test_confirmed_losses_leave_redis_once_they_are_replaced(rolled_back: Desk, redis: RedisServer) -> None:
    """The one that readers are pointed at stays until then: it was charged, is signed, and the pointer may not go back."""
    desk = rolled_back
    with pytest.raises(StateRolledBack):
        desk.publish("5")
    desk.guard.confirm("set", 2.0, 2e-9, "restored from a backup")
    desk.delivery.let_lost_go("set")
    assert lasting(redis) == {4}  # 1 and 2 were let go when 3 and 4 came
    for min_sequence in (0, 4):
        assert open_view(redis.url, "set", min_sequence=min_sequence).header.sequence == 4
    assert desk.delivery.reconcile(whole=True) == (2, 0, ())
    assert desk.publish("5").sequence == 5
    desk.delivery.deliver_pending()
    assert open_view(redis.url, "set", min_sequence=4).header.sequence == 5
    assert lasting(redis) == {5}
    assert open_view(redis.url, "set", sequence=4).header.sequence == 4  # for the grace of a reader in mid-download
    desk.close()


def test_what_is_lost_in_redis_too_is_not_missed(rolled_back: Desk, redis: RedisServer) -> None:
    """Nobody can restore a lost release; then the newest that the ledger knows is shown, and a reader who saw more refuses."""
    desk = rolled_back
    desk.guard.confirm("set", 2.0, 2e-9, "restored from a backup")
    redis.command("FLUSHALL")
    desk.delivery.let_lost_go("set")
    desk.delivery.reconcile()
    assert open_view(redis.url, "set").header.sequence == 2
    with pytest.raises(ReleaseRejected, match="older than 4"):
        open_view(redis.url, "set", min_sequence=4)
    assert desk.publish("5").sequence == 5
    desk.delivery.deliver_pending()
    assert open_view(redis.url, "set", min_sequence=4).header.sequence == 5
    desk.close()


def test_a_deleted_set_takes_confirmed_losses_along(rolled_back: Desk, redis: RedisServer) -> None:
    """No key of it is left."""
    desk = rolled_back
    desk.guard.confirm("set", 2.0, 2e-9, "restored from a backup")
    desk.delivery.forget("set", desk.ledger.list_releases("set", 0, 1000))
    assert redis_content(redis.url) == {}
    with pytest.raises(NotFound):
        open_view(redis.url, "set")
    desk.close()


def test_a_forged_manifest_makes_no_harm(rolled_back: Desk, redis: RedisServer) -> None:
    """A lost release whose manifest is damaged cannot be opened by any reader, and stops nothing."""
    desk = rolled_back
    desk.guard.confirm("set", 2.0, 2e-9, "restored from a backup")
    redis.command("SET", "veilset:set:3:manifest", "forged")
    desk.delivery.let_lost_go("set")
    desk.publish("5")
    assert desk.delivery.deliver_pending() == 1
    manifest = redis_content(redis.url)["veilset:set:5:manifest"]
    assert open_manifest(manifest).sequence == 5
    desk.close()
