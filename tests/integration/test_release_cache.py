"""Releases kept on the reader's machine: mapped together, checked each time, and never an older one than was seen."""

from __future__ import annotations

import os
import re
import resource
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import veilset
from harness.redis_releases import publish, put
from harness.redis_server import RedisServer
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader import redis_keys
from veilset._reader.cache import ReleaseCache
from veilset._reader.fetching import make_demands
from veilset._reader.reader import SetReleases
from veilset._reader.sources import RedisSource
from veilset.errors import (
    InvalidInput,
    NotFound,
    ReleaseRejected,
    StaleRelease,
    StateCorrupted,
    StorageFull,
    Unavailable,
    VeilsetError,
)

SHAPE = FilterParameters(30_001, 2, seed=11)
LONG = FilterParameters(20_000_000, 1, seed=11)
MEMBERS = [f"user{number}" for number in range(500)]
PINNED = [PUBLIC_KEY]
NOBODY = "redis://127.0.0.1:1/0"


def release(name: str, sequence: int = 1, shape: FilterParameters = SHAPE, **more: object) -> bytes:
    """A release file of ``MEMBERS``."""
    return release_bytes(MEMBERS, shape, 4.0, name=name, sequence=sequence, **more)  # type: ignore[arg-type]


def kept(folder: Path, set_name: str) -> list[str]:
    """The names of the release files in a cache."""
    return sorted(path.name for path in (folder / set_name).glob("*.veilset"))


def test_a_release_is_kept_as_the_file_that_save_writes(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """For this user alone, and answering the same."""
    data = release(set_name, 3)
    publish(valkey_url, data)
    folder = tmp_path / "new" / "cache"
    view = veilset.open(valkey_url, set_name, cache_dir=folder, public_keys=PINNED)
    path = folder / set_name / "3.veilset"
    assert path.read_bytes() == data
    view.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == data
    assert {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()} == {0o600}
    assert {stat.S_IMODE(found.stat().st_mode) for found in (folder, path.parent)} == {0o700}
    plain = veilset.open(data)
    assert (view.header, view.offline) == (plain.header, None)
    assert view.contains_many(MEMBERS).tolist() == plain.contains_many(MEMBERS).tolist()
    with pytest.raises(ValueError, match="read-only"):
        view.vector[0] = 1


def test_it_is_mapped_shared_and_read_only(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """As the kernel sees it: so all processes that open it hold its pages once."""
    publish(valkey_url, release(set_name))
    view = veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    maps = Path("/proc/self/maps").read_text()
    assert re.search(rf"r--s \S+ \S+ \d+ +{tmp_path}/{set_name}/1\.unpinned\.veilset$", maps, re.MULTILINE), maps
    del view


def test_the_newest_two_are_kept(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """A view of one that went still answers; what writers that were killed left behind goes after an hour."""
    (tmp_path / set_name).mkdir()
    old, fresh = tmp_path / set_name / "1.7.part", tmp_path / set_name / "1.8.part"
    old.touch()
    fresh.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    views = []
    for sequence in range(1, 5):
        publish(valkey_url, release(set_name, sequence))
        views.append(veilset.open(valkey_url, set_name, cache_dir=tmp_path))
    assert kept(tmp_path, set_name) == ["3.unpinned.veilset", "4.unpinned.veilset"]
    assert [path.name for path in (tmp_path / set_name).glob("*.part")] == [fresh.name]
    for sequence, view in enumerate(views, 1):
        assert view.vector.tobytes() == veilset.open(valkey_url, set_name, sequence=sequence).vector.tobytes()


def test_it_answers_while_redis_is_away_or_empty(
    start_redis: Callable[..., RedisServer], set_name: str, tmp_path: Path
) -> None:
    """And says why, and how old it is; without a cache nothing does."""
    server = start_redis()
    publish(server.url, release(set_name, 2))
    online = veilset.open(server.url, set_name, cache_dir=tmp_path)
    for breaks, error in ((lambda: server.command("FLUSHALL"), NotFound), (server.stop, Unavailable)):
        breaks()
        with pytest.raises(error):
            veilset.open(server.url, set_name)
        view = veilset.open(server.url, set_name, cache_dir=tmp_path, public_keys=PINNED if error is NotFound else ())
        assert type(view.offline) is error
        assert type(view.deciding(rule="all-ones").offline) is error
        assert (view.header, view.vector.tobytes()) == (online.header, online.vector.tobytes())
        assert view.age_seconds > 1e6
        with pytest.raises(StaleRelease, match=f"{set_name}/2"):
            veilset.open(server.url, set_name, cache_dir=tmp_path, max_age_seconds=3600)
    with pytest.raises(Unavailable):
        veilset.open(server.url, "never-seen", cache_dir=tmp_path)


def test_a_release_named_by_its_sequence_needs_no_redis(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """It never changes; asking for an old one by name does not make it the newest."""
    for sequence in (1, 2):
        publish(valkey_url, release(set_name, sequence))
        veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    assert veilset.open(NOBODY, set_name, sequence=1, cache_dir=tmp_path).header.sequence == 1
    assert veilset.open(NOBODY, set_name, cache_dir=tmp_path).header.sequence == 2
    with pytest.raises(Unavailable):
        veilset.open(NOBODY, set_name, sequence=3, cache_dir=tmp_path)


@pytest.mark.parametrize("keys", [[], PINNED], ids=["unpinned", "pinned"])
def test_an_older_release_is_refused_even_after_a_restart(
    keys: list[bytes], valkey_url: str, set_name: str, tmp_path: Path
) -> None:
    """S7 with state: the older one is whole and well signed, and the newer file is gone."""
    older, newer = release(set_name, 4), release(set_name, 5)
    publish(valkey_url, newer)
    veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=keys)
    put(valkey_url, set_name, 4, older)
    for _ in range(2):
        with pytest.raises(ReleaseRejected, match="older than 5") as caught:
            veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=keys)
        assert caught.value.details["check"] == "sequence"
        for path in tmp_path.rglob("5.*"):
            path.unlink()
    with redis.Redis.from_url(valkey_url) as client:
        client.delete(redis_keys.latest(set_name))
    with pytest.raises(NotFound):  # nothing is kept that would do
        veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=keys)
    assert veilset.open(valkey_url, set_name, public_keys=keys, sequence=4).header.sequence == 4


def test_a_sequence_is_remembered_only_after_all_checks(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """Else a forged release of the highest sequence would lock readers out for good."""
    publish(valkey_url, release(set_name, 2))
    put(valkey_url, set_name, 9, release(set_name, 9))
    with redis.Redis.from_url(valkey_url) as client:
        client.setrange(redis_keys.chunk(set_name, 9, 0), 100, b"tampered")
    foreign = release(set_name, 2**62, signer=Ed25519PrivateKey.generate())
    for shown in (None, foreign):
        if shown is not None:
            put(valkey_url, set_name, 2**62, shown)
        with pytest.raises(ReleaseRejected):
            veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED)
        assert not list(tmp_path.rglob("seen*"))
        assert kept(tmp_path, set_name) == []
        assert not list(tmp_path.rglob("*.part"))
    with redis.Redis.from_url(valkey_url) as client:
        client.set(redis_keys.latest(set_name), 2)
    assert veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED).header.sequence == 2


def test_who_pins_no_key_cannot_lock_out_who_does(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """Anybody can make a release for a reader without keys; one with keys goes by what was signed with them."""
    put(valkey_url, set_name, 99, release(set_name, 99, signer=Ed25519PrivateKey.generate()))
    assert veilset.open(valkey_url, set_name, cache_dir=tmp_path).header.sequence == 99
    put(valkey_url, set_name, 3, release(set_name, 3))
    view = veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED)
    assert view.header.sequence == 3
    with pytest.raises(ReleaseRejected, match="older than 99"):
        veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    away = veilset.open(NOBODY, set_name, cache_dir=tmp_path, public_keys=PINNED)
    assert away.header.sequence == 3


def test_who_pins_no_key_cannot_push_out_what_others_keep(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """Forged releases of huge sequences, one after the other, in the folder that readers of both kinds share."""
    foreign = Ed25519PrivateKey.generate()

    def forge(sequence: int) -> None:
        put(valkey_url, set_name, sequence, release(set_name, sequence, signer=foreign))
        assert veilset.open(valkey_url, set_name, cache_dir=tmp_path).header.sequence == sequence

    for genuine in (2, 3, 4):
        publish(valkey_url, release(set_name, genuine))
        with redis.Redis.from_url(valkey_url) as client:
            client.set(redis_keys.latest(set_name), genuine)
        assert veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED).header.sequence == genuine
        for sequence in range(10**17 * genuine, 10**17 * genuine + 3):
            forge(sequence)
        away = veilset.open(NOBODY, set_name, cache_dir=tmp_path, public_keys=PINNED)
        assert (away.header.sequence, type(away.offline)) == (genuine, Unavailable)
    assert kept(tmp_path, set_name) == [
        "3.veilset",
        "4.veilset",
        f"{4 * 10**17 + 1}.unpinned.veilset",
        f"{4 * 10**17 + 2}.unpinned.veilset",
    ]


def test_what_one_without_keys_fetched_counts_once_a_pinned_key_is_found_on_it(
    valkey_url: str, set_name: str, tmp_path: Path
) -> None:
    """The file is not fetched twice, and is kept as if it had been fetched by who pins; the forged one is not."""
    publish(valkey_url, release(set_name, 2))
    veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    fetched = next(tmp_path.rglob("2.*")).stat().st_ino
    put(valkey_url, set_name, 9, release(set_name, 9, signer=Ed25519PrivateKey.generate()))
    veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    assert veilset.open(NOBODY, set_name, cache_dir=tmp_path, public_keys=PINNED).header.sequence == 2
    assert kept(tmp_path, set_name) == ["2.veilset", "9.unpinned.veilset"]
    assert (tmp_path / set_name / "2.veilset").stat().st_ino == fetched


@pytest.mark.parametrize("keys", [[], PINNED], ids=["unpinned", "pinned"])
def test_a_release_just_stored_stays_however_old(
    keys: list[bytes], valkey_url: str, set_name: str, tmp_path: Path
) -> None:
    """Named by its sequence, it is fetched once, and the newest stay as well; the next one that is named takes its place."""
    for sequence in range(1, 5):
        publish(valkey_url, release(set_name, sequence))
        veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=keys)
    for old in (1, 2):
        veilset.open(valkey_url, set_name, sequence=old, cache_dir=tmp_path, public_keys=keys)
        again = veilset.open(NOBODY, set_name, sequence=old, cache_dir=tmp_path, public_keys=keys)
        assert again.header.sequence == old
        assert [name.split(".")[0] for name in kept(tmp_path, set_name)] == [str(old), "3", "4"]
        assert veilset.open(NOBODY, set_name, cache_dir=tmp_path, public_keys=keys).header.sequence == 4


def damages(good: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """A kept file, damaged in every way that a disk or another user might."""
    for index in [*range(0, len(good), 41), len(good) - 1]:
        yield f"byte {index}", good[:index] + bytes([good[index] ^ 0x10]) + good[index + 1 :]
    for length in (0, 1, 11, 12, 100, len(good) - 1):
        yield f"cut to {length}", good[:length]
    yield "of another set", release("another", 6)
    yield "an older release", release(name, 5)
    yield "of another service", release(name, 6, signer=Ed25519PrivateKey.generate())


def test_a_damaged_file_is_never_trusted(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """It is fetched again and healed; without Redis there is no answer."""
    good = release(set_name, 6)
    publish(valkey_url, good)
    view = veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED)
    path = tmp_path / set_name / "6.veilset"
    cache, demands = ReleaseCache(tmp_path, set_name), make_demands(set_name, PINNED)
    unsigned = 0  # the name of the key and such
    tried = 0
    for what, data in damages(good, set_name):
        path.unlink()  # as a file that is mapped is not to be changed
        path.write_bytes(data)
        tried += 1
        if found := cache.load(6, demands):
            unsigned += 1
            assert found.header == view.header, what
            assert found.vector.tobytes() == view.vector.tobytes(), what
            continue
        again = veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED)
        assert (again.header, again.vector.tobytes()) == (view.header, view.vector.tobytes()), what
        assert path.read_bytes() == good, what
    assert tried > 100
    assert unsigned <= 3
    path.unlink()
    path.write_bytes(good[:-1])
    with pytest.raises(Unavailable):
        veilset.open(NOBODY, set_name, cache_dir=tmp_path, public_keys=PINNED)


def test_a_damaged_memory_is_named_not_forgotten(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    publish(valkey_url, release(set_name))
    veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    for text in ("", "x", "-1", "9" * 20):
        (tmp_path / set_name / "seen").write_text(text)
        with pytest.raises(StateCorrupted, match=f"{set_name}/seen does not hold a sequence"):
            veilset.open(valkey_url, set_name, cache_dir=tmp_path)
        with pytest.raises(StateCorrupted):
            veilset.follow(valkey_url, set_name, cache_dir=tmp_path)


@contextmanager
def largest_file(length: int) -> Iterator[None]:
    """No file of this process may grow longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_leaves_nothing(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    publish(valkey_url, release(set_name, shape=LONG))
    with largest_file(2_000_000), pytest.raises(StorageFull, match="cache_dir: the disk of the folder is full"):
        veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    assert [path.name for path in (tmp_path / set_name).iterdir()] == []
    assert veilset.open(valkey_url, set_name, cache_dir=tmp_path).header.sequence == 1


def test_a_folder_that_cannot_be_is_refused(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cache_dir must be a folder that can be made and written"):
        veilset.open(valkey_url, set_name, cache_dir=tmp_path / "file")
    with pytest.raises(InvalidInput, match="cache_dir"):
        veilset.open(release(set_name), cache_dir=tmp_path)


def test_another_reader_may_be_faster(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """It remembers a newer release between our look at the pointer and our checks: that is no step back."""

    class Slow(RedisSource):
        def latest(self) -> int:
            found = super().latest()
            publish(valkey_url, release(set_name, 2))
            assert veilset.open(valkey_url, set_name, cache_dir=tmp_path).header.sequence == 2
            return found

    publish(valkey_url, release(set_name, 1))
    releases = SetReleases(set_name, make_demands(set_name), tmp_path)
    with closing(Slow(valkey_url, set_name)) as source:
        assert releases.newest(source)[-1].header.sequence == 1
    assert (tmp_path / set_name / "seen").read_text() == "2"


def test_many_readers_of_one_folder(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """All at once, while releases come: each gets a whole one, none goes back, and no half file is left."""
    files = {sequence: release(set_name, sequence) for sequence in range(1, 6)}
    truth = {sequence: data[-SHAPE.vector_bytes :] for sequence, data in files.items()}
    publish(valkey_url, files[1])
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        last = 0
        while not done.is_set() or last < len(truth):
            try:
                view = veilset.open(valkey_url, set_name, cache_dir=tmp_path, public_keys=PINNED)
            except VeilsetError as error:
                wrong.append(error)
                return
            if view.header.sequence < last or view.vector.tobytes() != truth[view.header.sequence]:
                wrong.append((last, view.header.sequence))
                return
            last = view.header.sequence

    readers = [threading.Thread(target=read) for _ in range(6)]
    for reader in readers:
        reader.start()
    for sequence in range(2, 6):
        publish(valkey_url, files[sequence])
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert not list((tmp_path / set_name).glob("*.part"))
    assert (tmp_path / set_name / "seen-pinned").read_text() == "5"
