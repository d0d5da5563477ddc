"""A Redis that was taken over says what it likes, in any length: an error, in little memory, and no follower stops following."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import cycle, product
from pathlib import Path

import pytest
import redis

import veilset
from harness.hostile_redis import MALFORMED, Answer, HostileRedis, pours, says, trickles
from harness.programs import environment, wait_until
from harness.redis_releases import publish
from harness.releases import release_bytes
from harness.shapes import FilterParameters
from veilset._reader import redis_client as client_module
from veilset._reader import redis_connections
from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import connect_redis, transient
from veilset.core.release.signing import MAX_MANIFEST_BYTES
from veilset.errors import NotFound, Unavailable, VeilsetError
from veilset_server.redis.store import RedisStore

SHAPE = FilterParameters(30_001, 2, seed=11)
POURED_BYTES = 400 << 20
ALLOWED_BYTES = 100 << 20
COMMANDS = (
    *("GETRANGE", "SET", "EXEC"),
    *(
        pytest.param(name, marks=pytest.mark.security)
        for name in ("WATCH", "MULTI", "DISCARD", "PUBLISH", "EXPIRE", "UNLINK", "INFO")
    ),
)
"""Most of the time is waiting to try again, so the others are tried by `make security`."""
ACTIONS: tuple[Callable[[RedisStore], object], ...] = (
    RedisStore.ping,
    RedisStore.evicts,
    lambda store: store.probe("set"),
    lambda store: store.latest("set"),
    lambda store: store.manifest("set", 1),
    lambda store: store.upload("set", 1, b"manifest", iter([b"chunk"])),
    lambda store: store.missing_chunks("set", 1, b"manifest", [5]),
    lambda store: store.changed_chunks("set", 1, {0: b""}),
    lambda store: store.move_pointer("set", 1),
    lambda store: store.expire("set", 1, 1, 1),
    lambda store: store.remove("set", [(1, 1)]),
)


def release(name: str, sequence: int = 1) -> bytes:
    """A small release file."""
    return release_bytes(["user"], SHAPE, 4.0, name=name, sequence=sequence)


@pytest.fixture
def hostile(valkey_url: str) -> Iterator[HostileRedis]:
    """In front of a real one."""
    with HostileRedis(valkey_url) as found:
        yield found


@pytest.mark.parametrize("said", MALFORMED)
def test_nothing_said_on_a_channel_ends_a_follower(
    said: str, hostile: HostileRedis, valkey_url: str, set_name: str
) -> None:
    """It goes on polling: two more releases, as the first may be seen before what was said is heard."""
    publish(valkey_url, release(set_name, 1))
    hostile.answers["SUBSCRIBE"] = says(MALFORMED[said])
    with veilset.follow(hostile.url, set_name, poll_seconds=0.01) as follower:
        wait_until(lambda: hostile.asked > 0)
        for sequence in (2, 3, 4):
            publish(valkey_url, release(set_name, sequence))
            wait_until(lambda n=sequence: follower.sequence == n)  # type: ignore[misc]


@pytest.mark.parametrize("fails", ["listen", "wait"])
def test_only_close_ends_a_follower(
    fails: str, valkey_url: str, set_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a fault of ours beneath it, which is told in ``last_error``."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    publish(valkey_url, release(set_name, 1))
    with veilset.follow(valkey_url, set_name, poll_seconds=0.01) as follower:
        with monkeypatch.context() as patched:
            patched.setattr(f"veilset._reader.notifications.Notifications.{fails}", broken)
            wait_until(lambda: isinstance(follower.last_error, ZeroDivisionError))
        publish(valkey_url, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2 and follower.last_error is None)


def test_a_channel_that_never_falls_silent_does_not_keep_a_follower_from_looking(
    hostile: HostileRedis, valkey_url: str, set_name: str
) -> None:
    """Of announcements, and of what is none."""
    publish(valkey_url, release(set_name, 1))
    for number, kind in enumerate((b"$7\r\nmessage\r\n", b"$9\r\nsubscribe\r\n")):
        noise = b"*3\r\n" + kind + b"$1\r\nx\r\n:1\r\n"
        hostile.answers["SUBSCRIBE"] = pours(noise, noise, 1 << 40)
        with veilset.follow(hostile.url, set_name, poll_seconds=0.05) as follower:
            wait_until(lambda: hostile.asked > 0)
            for sequence in (2 + 2 * number, 3 + 2 * number):
                publish(valkey_url, release(set_name, sequence))
                wait_until(lambda n=sequence: follower.sequence == n)  # type: ignore[misc]
        hostile.asked = 0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_service_takes_any_answer_for_an_error_of_redis(command: str, valkey_url: str) -> None:
    """To any command it sends: never an exception that is not ours, nor a loop without end."""

    def ask(case: tuple[bytes, Callable[[RedisStore], object]]) -> int:
        said, action = case
        with HostileRedis(valkey_url) as hostile, closing(RedisStore(hostile.url, timeout_seconds=0.1)) as store:
            hostile.answers = {command: says(said)}
            with suppress(VeilsetError):
                action(store)
            return hostile.asked

    with ThreadPoolExecutor(64) as pool:  # what takes the time is waiting to try again
        asked = list(pool.map(ask, product(MALFORMED.values(), ACTIONS)))
    assert sum(asked) >= len(MALFORMED)


@pytest.mark.parametrize("command", ["GETRANGE", pytest.param("STRLEN", marks=pytest.mark.security), "BITCOUNT"])
def test_a_reader_takes_any_answer_for_an_error_of_redis(
    command: str, hostile: HostileRedis, valkey_url: str, set_name: str
) -> None:
    publish(valkey_url, release(set_name))
    for said in MALFORMED.values():
        hostile.answers = {command: says(said)}
        if command == "GETRANGE":
            with pytest.raises(VeilsetError):
                veilset.open(hostile.url, set_name)
            continue
        hostile.answers[command] = says(said * 3000 if len(said) < 100 else said)  # a pipeline waits for more than one
        with suppress(VeilsetError), veilset.remote(hostile.url, set_name) as remote:
            remote.contains_many(["user"])
    assert hostile.asked >= len(MALFORMED)


@pytest.mark.parametrize("said", ["a number", "an empty array", "a kind that is an array", "a count of 10^9"])
def test_a_cluster_may_say_anything_of_itself(said: str, hostile: HostileRedis) -> None:
    hostile.answers["CLUSTER"] = says(MALFORMED[said])
    with pytest.raises(Unavailable):
        connect_redis(hostile.url.replace("redis:", "redis+cluster:"), 0.5)


POURING: dict[str, Answer] = {
    "a string": pours(b"$1500000000\r\n", b"\0", POURED_BYTES),
    "a line": pours(b"+", b"a", POURED_BYTES),
    "an error": pours(b"-ERR ", b"a", POURED_BYTES),
    "an array": pours(b"*1000000000\r\n", b"*0\r\n", POURED_BYTES),
    "arrays that nest": pours(b"", b"*9\r\n", POURED_BYTES),
    "an array of long strings": pours(b"*1000\r\n", b"$6000000\r\n" + bytes(6_000_000) + b"\r\n", POURED_BYTES),
    "answer after answer": pours(b"", b"$6000000\r\n" + bytes(6_000_000) + b"\r\n", POURED_BYTES),
}
READS = {
    "open": ("GETRANGE", "veilset.open(URL, SET)"),
    "the service": ("GETRANGE", "RedisStore(URL, 5.0).latest(SET)"),
    "a pipeline": ("GETRANGE", "RedisStore(URL, 5.0).missing_chunks(SET, 1, b'x', [1] * 1000)"),
    "a channel": ("SUBSCRIBE", "listen()"),
}
PROGRAM = """
import sys, threading
import veilset
from harness.peak_memory import own_peak_bytes
from veilset._reader.notifications import Notifications
from veilset_server.redis.store import RedisStore
_, URL, SET, read, times = sys.argv
def listen():
    news = Notifications(URL, SET, threading.Event())
    news.listen()
    news.wait(0.5)
    news.close()
before = own_peak_bytes()
for _ in range(int(times)):
    try:
        eval(read)
    except veilset.VeilsetError:
        pass
    print(own_peak_bytes() - before)
"""


@pytest.mark.security
@pytest.mark.parametrize("read", READS)
def test_no_answer_takes_much_memory(read: str, hostile: HostileRedis, set_name: str) -> None:
    """400 MB of each kind of answer are poured into a process of its own, and it never holds a quarter of one."""
    command, call = READS[read]
    kinds = cycle(POURING.values())
    hostile.answers[command] = lambda: next(kinds)()
    arguments = [sys.executable, "-c", PROGRAM, hostile.url, set_name, call, str(len(POURING))]
    settings = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(arguments, env=environment(settings), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peaks = dict(zip(POURING, map(int, done.stdout.split()), strict=True))
    assert max(peaks.values()) < ALLOWED_BYTES, peaks
    assert hostile.asked >= len(POURING)


TRICKLING: dict[str, Answer] = {
    "a string": trickles(b"$5000\r\n", b"a", 0.02),
    "a line": trickles(b"+", b"a", 0.02),
    "an array": trickles(b"*9000\r\n", b"$1\r\na\r\n", 0.02),
}


@pytest.mark.parametrize("kind", TRICKLING)
def test_an_answer_that_comes_byte_by_byte_has_an_end(
    kind: str, hostile: HostileRedis, set_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes well within the timeout."""
    monkeypatch.setattr(redis_connections, "PATIENCE_SECONDS", 0.3)
    hostile.answers["GETRANGE"] = TRICKLING[kind]
    with pytest.raises(Unavailable), closing(RedisStore(hostile.url, 5.0)) as store:
        store.latest(set_name)
    with pytest.raises(Unavailable):
        veilset.open(hostile.url, set_name)


@pytest.mark.parametrize("length", [21, MAX_MANIFEST_BYTES + 1, 64 << 20])
def test_a_key_of_any_length_is_read_in_part_and_written_over(length: int, valkey_url: str, set_name: str) -> None:
    """The service asks for no more than a pointer or a manifest can have; what is longer is as good as lost."""
    with closing(RedisStore(valkey_url, 5.0)) as store, redis.Redis.from_url(valkey_url) as client:
        store.upload(set_name, 1, b"manifest", iter([b"chunk"]))
        client.setrange(keys.latest(set_name), length - 1, b"9")
        client.setrange(keys.manifest(set_name, 1), max(length, MAX_MANIFEST_BYTES + 1) - 1, b"x")
        client.config_resetstat()
        assert store.latest(set_name) == 0
        with pytest.raises(NotFound):
            store.manifest(set_name, 1)
        assert store.missing_chunks(set_name, 1, b"manifest", [5]) == [keys.MANIFEST]
        store.move_pointer(set_name, 1)
        sent = client.info("stats")["total_net_output_bytes"]
        assert sent < MAX_MANIFEST_BYTES + (1 << 20)
        store.restore(set_name, 1, keys.MANIFEST, b"manifest")
        assert (store.latest(set_name), store.manifest(set_name, 1)) == (1, b"manifest")


@pytest.mark.parametrize("error", client_module._MALFORMED)
def test_what_redis_py_makes_of_nonsense_is_no_exception_of_ours(error: type[Exception]) -> None:
    with pytest.raises(Unavailable, match="protocol"), transient():
        raise error
