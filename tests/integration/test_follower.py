"""A follower: the newest verified release, whatever Redis does, and an end without a trace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import veilset
from harness.programs import wait_until
from harness.redis_releases import now_us, point_at, publish, put, put_beside
from harness.redis_server import RedisServer
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader import redis_keys as keys
from veilset._reader.view import View
from veilset.errors import (
    InvalidInput,
    NotFound,
    PoorUtility,
    ReleaseRejected,
    StaleRelease,
    Unavailable,
    VeilsetError,
)

SHAPE = FilterParameters(30_001, 1, seed=11)
MEMBERS = [f"user{number}" for number in range(500)]
NEVER = 86_400.0
"""A poll that does not come: what is seen was announced."""


def release(name: str, sequence: int, epsilon: float = 4.0, **more: object) -> bytes:
    """A release file of ``MEMBERS``."""
    return release_bytes(MEMBERS, SHAPE, epsilon, name=name, sequence=sequence, **more)  # type: ignore[arg-type]


def followers() -> list[str]:
    """Threads of followers that run."""
    return [thread.name for thread in threading.enumerate() if "follow" in thread.name]


def last_error(follower: veilset.Follower) -> type[BaseException] | None:
    """Its kind."""
    return None if follower.last_error is None else type(follower.last_error)


def test_an_announced_release_is_taken_at_once(valkey_url: str, set_name: str) -> None:
    """In order, each told to on_release; what was taken before stays as it was."""
    told: list[int] = []
    publish(valkey_url, release(set_name, 1))
    with veilset.follow(
        valkey_url,
        set_name,
        poll_seconds=NEVER,
        public_keys=[PUBLIC_KEY],
        on_release=lambda view: told.append(view.header.sequence),
    ) as follower:
        first = follower.view
        before = first.contains_many(MEMBERS).tolist()
        assert (follower.sequence, follower.last_error, told) == (1, None, [])
        for sequence in (2, 3):
            publish(valkey_url, release(set_name, sequence))
            wait_until(lambda s=sequence: told[-1:] == [s])  # type: ignore[misc]
            assert follower.sequence == sequence
            truth = veilset.open(valkey_url, set_name)
            assert follower.contains_many(MEMBERS).tolist() == truth.contains_many(MEMBERS).tolist()
            assert (MEMBERS[0] in follower) == (MEMBERS[0] in truth)
            assert follower.scores(MEMBERS).tolist() == truth.scores(MEMBERS).tolist()
            assert follower.posteriors(MEMBERS, 0.1).tolist() == truth.posteriors(MEMBERS, 0.1).tolist()
            assert follower.filter(MEMBERS) == truth.filter(MEMBERS)
            assert follower.check(MEMBERS[0], 0.1) == truth.check(MEMBERS[0], 0.1)
            assert follower.overlap(MEMBERS) == truth.overlap(MEMBERS)
        assert told == [2, 3]
        assert (first.header.sequence, first.contains_many(MEMBERS).tolist()) == (1, before)


def test_a_release_that_nobody_announced_is_found_by_the_poll(valkey_url: str, set_name: str) -> None:
    publish(valkey_url, release(set_name, 1))
    with veilset.follow(valkey_url, set_name, poll_seconds=0.05) as follower:
        put(valkey_url, set_name, 2, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2)


def test_a_channel_that_is_not_allowed_leaves_the_poll(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    """A reader may be given GETRANGE and nothing else."""
    server = start_redis()
    server.command("ACL", "SETUSER", "reader", "on", ">secret", "~veilset:*", "resetchannels", "-@all", "+getrange")
    publish(server.url, release(set_name, 1))
    url = server.url.replace("redis://", "redis://reader:secret@")
    with veilset.follow(url, set_name, poll_seconds=0.05) as follower:
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2)
        assert follower.last_error is None


def test_it_goes_on_while_redis_is_away_empty_and_back(
    start_redis: Callable[..., RedisServer], set_name: str, tmp_path: Path
) -> None:
    """Answers never stop; the error says what is wrong, and goes when it is not any more."""
    server = start_redis()
    publish(server.url, release(set_name, 1))
    with veilset.follow(server.url, set_name, poll_seconds=0.1, cache_dir=tmp_path) as follower:
        answers = follower.contains_many(MEMBERS).tolist()
        server.stop()
        wait_until(lambda: last_error(follower) is Unavailable)
        assert follower.contains_many(MEMBERS).tolist() == answers
        server.start()  # with nothing in it
        wait_until(lambda: last_error(follower) is NotFound)
        assert follower.contains_many(MEMBERS).tolist() == answers
        assert follower.sequence == 1
        with pytest.raises(NotFound):
            follower.refresh()
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2 and follower.last_error is None)
        server.command("FLUSHALL")
        wait_until(lambda: last_error(follower) is NotFound)
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.last_error is None)
        server.stop()
    with veilset.follow(server.url, set_name, poll_seconds=0.1, cache_dir=tmp_path) as follower:
        assert (follower.sequence, last_error(follower)) == (2, Unavailable)
        assert type(follower.view.offline) is Unavailable
        server.start()
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.last_error is None and follower.view.offline is None)
        publish(server.url, release(set_name, 3))
        wait_until(lambda: follower.sequence == 3)
    server.stop()
    with pytest.raises(Unavailable):
        veilset.follow(server.url, set_name)
    assert followers() == []


def test_it_listens_again_when_redis_is_back(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    """What is announced then is heard: no poll comes."""
    server = start_redis()
    publish(server.url, release(set_name, 1))
    with veilset.follow(server.url, set_name, poll_seconds=NEVER) as follower:
        wait_until(lambda: b"sub" in server.command("CLIENT", "LIST", "TYPE", "PUBSUB"))
        server.stop()
        wait_until(lambda: last_error(follower) is Unavailable)
        server.start()
        publish(server.url, release(set_name, 1))
        wait_until(lambda: follower.last_error is None)
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2)


def test_the_sequence_never_goes_back(valkey_url: str, set_name: str) -> None:
    """S7: an old release, well signed, is refused; so is one that is not whole; a newer one ends it."""
    for sequence in (1, 2):
        publish(valkey_url, release(set_name, sequence))
    with veilset.follow(valkey_url, set_name, poll_seconds=0.05) as follower:
        assert follower.sequence == 2
        point_at(valkey_url, set_name, b"1")
        wait_until(lambda: last_error(follower) is ReleaseRejected)
        put_beside(valkey_url, set_name, 3, release(set_name, 3))
        with redis.Redis.from_url(valkey_url) as client:
            client.setrange(keys.chunk(set_name, 3, 0), 5, b"x")
        point_at(valkey_url, set_name, b"3")
        wait_until(lambda: "hash" in str(follower.last_error))
        assert follower.sequence == 2
        publish(valkey_url, release(set_name, 4))
        wait_until(lambda: follower.sequence == 4 and follower.last_error is None)


def test_a_stale_release_answers_nothing(valkey_url: str, set_name: str) -> None:
    """Every question raises; a fresh release ends it. A clock that is ahead of ours makes nothing stale."""
    publish(valkey_url, release(set_name, 1, created_at_us=now_us() - 7_200_000_000))
    with veilset.follow(valkey_url, set_name, poll_seconds=0.05, max_age_seconds=3600) as follower:
        assert follower.age_seconds >= 7200
        assert follower.sequence == 1
        questions: list[Callable[[], object]] = [
            lambda: follower.view,
            lambda: MEMBERS[0] in follower,
            lambda: follower.contains_many(MEMBERS),
            lambda: follower.scores(MEMBERS),
            lambda: follower.posteriors(MEMBERS, 0.1),
            lambda: follower.filter(MEMBERS),
            lambda: follower.check(MEMBERS[0], 0.1),
            lambda: follower.overlap(MEMBERS),
            follower.refresh,
        ]
        for question in questions:
            with pytest.raises(StaleRelease, match=f"{set_name}/1"):
                question()
        publish(valkey_url, release(set_name, 2, created_at_us=now_us() + 7_200_000_000))
        wait_until(lambda: follower.sequence == 2)
        assert follower.age_seconds < 3600
        for question in questions:
            question()


def test_a_release_that_cannot_keep_the_callers_limit_is_not_taken(valkey_url: str, set_name: str) -> None:
    publish(valkey_url, release(set_name, 1, 6.0))
    with veilset.follow(valkey_url, set_name, poll_seconds=0.05, max_false_positive_rate=0.05) as follower:
        publish(valkey_url, release(set_name, 2, 1.0))
        wait_until(lambda: last_error(follower) is PoorUtility)
        assert follower.sequence == 1
        assert follower.view.decoder.false_positive_rate <= 0.05
        publish(valkey_url, release(set_name, 3, 6.0))
        wait_until(lambda: follower.sequence == 3)


def test_what_on_release_raises_is_told_and_ends_nothing(valkey_url: str, set_name: str) -> None:
    told: list[View] = []

    def on_release(view: View) -> None:
        told.append(view)
        raise RuntimeError("of the caller")

    publish(valkey_url, release(set_name, 1))
    with veilset.follow(valkey_url, set_name, poll_seconds=NEVER, on_release=on_release) as follower:
        for sequence in (2, 3):
            publish(valkey_url, release(set_name, sequence))
            wait_until(lambda s=sequence: len(told) == s - 1 and follower.sequence == s)  # type: ignore[misc]
            wait_until(lambda: last_error(follower) is RuntimeError)


def test_closing_leaves_no_thread_and_the_last_view(valkey_url: str, set_name: str) -> None:
    """Also from on_release, twice, and while nothing happens; after that it does not look any more."""
    publish(valkey_url, release(set_name, 1))
    follower = veilset.follow(valkey_url, set_name, poll_seconds=NEVER, on_release=lambda _: follower.close())
    assert followers() == [f"follow {set_name}"]
    publish(valkey_url, release(set_name, 2))
    wait_until(lambda: followers() == [])
    follower.close()
    assert follower.sequence == 2
    assert len(follower.contains_many(MEMBERS)) == len(MEMBERS)
    with pytest.raises(Unavailable, match="closed"):
        follower.refresh()
    with redis.Redis.from_url(valkey_url) as client:
        wait_until(lambda: not client.pubsub_numsub(keys.channel(set_name))[0][1])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"poll_seconds": 0}, InvalidInput),
        ({"poll_seconds": float("nan")}, InvalidInput),
        ({"poll_seconds": 1e9}, InvalidInput),
        ({"max_age_seconds": 0}, InvalidInput),
        ({"public_keys": ["xx"]}, InvalidInput),
        ({"public_keys": "ab" * 32}, InvalidInput),
        ({"min_sequence": 2}, ReleaseRejected),
        ({"rule": "none"}, InvalidInput),
    ],
)
def test_bad_arguments_leave_no_thread(
    options: dict[str, object], error: type[VeilsetError], valkey_url: str, set_name: str
) -> None:
    publish(valkey_url, release(set_name, 1))
    with pytest.raises(error):
        veilset.follow(valkey_url, set_name, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="redis"):
        veilset.follow("no-url", set_name)
    with pytest.raises(NotFound):
        veilset.follow(valkey_url, "no-such-set")
    assert followers() == []


def test_a_cluster_is_followed(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    server = start_redis(arguments=["--cluster-enabled", "yes"]).make_cluster()
    publish(server.url, release(set_name, 1))
    with veilset.follow(server.url, set_name, poll_seconds=NEVER) as follower:
        publish(server.url, release(set_name, 2))
        wait_until(lambda: follower.sequence == 2)
