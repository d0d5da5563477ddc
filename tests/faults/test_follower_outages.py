"""Followers behind a bad line: swallowed, cut and slow answers, and an end that does not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

import veilset
from harness.programs import wait_until
from harness.redis_releases import publish
from harness.releases import release_bytes
from harness.shapes import FilterParameters
from harness.tcp_proxy import Mode, TcpProxy
from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import connect_redis
from veilset.errors import Unavailable

SHAPE = FilterParameters(30_001, 1, seed=11)
LONG = FilterParameters(20_000_000, 1, seed=11)
MEMBERS = [f"user{number}" for number in range(500)]


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.DROP_REPLIES, Mode.DELAY])
def test_it_goes_on_through_a_bad_line(mode: Mode, valkey_url: str, set_name: str) -> None:
    """Answers never stop, and the newest release comes when the line is good again, or slow."""
    publish(valkey_url, release_bytes(MEMBERS, SHAPE, 4.0, name=set_name))
    with TcpProxy(urlsplit(valkey_url).port or 0) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with veilset.follow(url, set_name, poll_seconds=0.1) as follower:
            proxy.mode = mode
            publish(valkey_url, release_bytes(MEMBERS, SHAPE, 4.0, name=set_name, sequence=2))
            if mode is not Mode.DELAY:
                wait_until(lambda: isinstance(follower.last_error, Unavailable))
                assert follower.sequence == 1
                assert len(follower.contains_many(MEMBERS)) == len(MEMBERS)
                proxy.mode = Mode.PASS
            wait_until(lambda: follower.sequence == 2 and follower.last_error is None)


@pytest.mark.parametrize("stage", ["connecting", "asking"])
def test_an_answer_that_never_comes_does_not_hold_up_the_end(
    stage: str, valkey_url: str, set_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits for Redis, here for an hour: `close` ends the wait, and the thread."""
    defaults = connect_redis.__defaults__
    assert defaults is not None
    monkeypatch.setattr(connect_redis, "__defaults__", (3600.0, *defaults[1:]))
    publish(valkey_url, release_bytes(MEMBERS, SHAPE, 4.0, name=set_name))
    with TcpProxy(urlsplit(valkey_url).port or 0) as proxy, redis.Redis.from_url(valkey_url) as client:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with veilset.follow(url, set_name, poll_seconds=0.05) as follower:
            if stage == "asking":
                wait_until(lambda: client.pubsub_numsub(keys.channel(set_name))[0][1])
            proxy.mode = Mode.BLACK_HOLE
            asking = threading.Thread(target=_refuses, args=(follower.refresh,))
            asking.start()
            asking.join(0.5)
            closing = threading.Thread(target=follower.close)
            closing.start()
            wait_until(lambda: not closing.is_alive())
        asking.join()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("follow")]
        assert len(follower.contains_many(MEMBERS)) == len(MEMBERS)


def test_a_release_that_is_cut_in_the_middle_leaves_the_old_one(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """And no half file, and no memory of its sequence."""
    publish(valkey_url, release_bytes(MEMBERS, SHAPE, 4.0, name=set_name))
    with TcpProxy(urlsplit(valkey_url).port or 0) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with veilset.follow(url, set_name, poll_seconds=0.05, cache_dir=tmp_path) as follower:
            proxy.mode = Mode.DROP_REPLIES
            wait_until(lambda: follower.last_error is not None)
            publish(valkey_url, release_bytes(MEMBERS, LONG, 4.0, name=set_name, sequence=2))
            kept = [path.name for path in tmp_path.rglob("*.veilset")]
            assert (follower.sequence, kept) == (1, ["1.unpinned.veilset"])
            proxy.mode = Mode.PASS
            wait_until(lambda: follower.sequence == 2)
        assert (tmp_path / set_name / "seen").read_text() == "2"
        assert not list(tmp_path.rglob("*.part"))


def _refuses(refresh: Callable[[], object]) -> None:
    with pytest.raises(Unavailable):
        refresh()
