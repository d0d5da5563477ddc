"""Opening and following from asyncio: the event loop never waits, and a cancelled call leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import veilset
from harness.programs import wait_until
from harness.redis_releases import publish
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader.view import View
from veilset.aio import AsyncFollower
from veilset.errors import InvalidInput, NotFound, Unavailable

SHAPE = FilterParameters(30_001, 1, seed=11)
MEMBERS = [f"user{number}" for number in range(500)]
NEVER = 86_400.0


def release(name: str, sequence: int) -> bytes:
    """A release file of ``MEMBERS``."""
    return release_bytes(MEMBERS, SHAPE, 4.0, name=name, sequence=sequence)


def followers() -> list[str]:
    """Threads of followers that run."""
    return [thread.name for thread in threading.enumerate() if "follow" in thread.name]


async def until(holds: Callable[[], bool]) -> None:
    """Wait without holding the loop."""
    await asyncio.to_thread(wait_until, holds)


def test_open(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    data = release(set_name, 1)
    publish(valkey_url, data)

    async def main() -> View:
        views = await asyncio.gather(
            veilset.aio.open(valkey_url, set_name, public_keys=[PUBLIC_KEY]),
            veilset.aio.open(valkey_url, set_name, cache_dir=tmp_path),
            veilset.aio.open(data),
        )
        with pytest.raises(NotFound):
            await veilset.aio.open(valkey_url, "no-such-set")
        assert len({view.vector.tobytes() for view in views}) == 1
        return views[0]

    assert asyncio.run(main()).header.set_name == set_name


def test_follow(valkey_url: str, set_name: str) -> None:
    """The questions of a follower; on_release is called in the loop's thread."""
    publish(valkey_url, release(set_name, 1))
    told: list[tuple[int, threading.Thread]] = []

    async def main() -> None:
        def on_release(view: View) -> None:
            told.append((view.header.sequence, threading.current_thread()))

        async with veilset.aio.follow(valkey_url, set_name, poll_seconds=NEVER, on_release=on_release) as follower:
            assert (follower.sequence, follower.last_error) == (1, None)
            await asyncio.to_thread(publish, valkey_url, release(set_name, 2))
            await until(lambda: bool(told))
            view = await follower.refresh()
            assert (view.header.sequence, follower.sequence) == (2, 2)
            truth = veilset.open(valkey_url, set_name)
            assert (MEMBERS[0] in follower) == (MEMBERS[0] in truth)
            assert follower.contains_many(MEMBERS).tolist() == truth.contains_many(MEMBERS).tolist()
            assert follower.scores(MEMBERS).tolist() == truth.scores(MEMBERS).tolist()
            assert follower.posteriors(MEMBERS, 0.1).tolist() == truth.posteriors(MEMBERS, 0.1).tolist()
            assert follower.filter(MEMBERS) == truth.filter(MEMBERS)
            assert follower.check(MEMBERS[0], 0.1) == truth.check(MEMBERS[0], 0.1)
            assert follower.overlap(MEMBERS) == truth.overlap(MEMBERS)
            assert follower.age_seconds > 1e6
        assert followers() == []
        assert follower.view.header.sequence == 2

    asyncio.run(main())
    assert told == [(2, threading.main_thread())]


def test_errors_come_from_async_with(valkey_url: str) -> None:
    async def main() -> None:
        follower = veilset.aio.follow(valkey_url, "no-such-set")
        with pytest.raises(RuntimeError, match="async with"):
            _ = follower.view
        await follower.close()
        for url, error in ((valkey_url, NotFound), ("no-url", InvalidInput)):
            with pytest.raises(error):
                async with veilset.aio.follow(url, "no-such-set"):
                    pytest.fail("nothing to follow")

    asyncio.run(main())
    assert followers() == []


def test_a_cancelled_call_returns_at_once_and_leaves_nothing() -> None:
    """While a Redis that says nothing is asked, the loop goes on; the threads end when the connection does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"

        async def main() -> None:
            async def follow() -> None:
                async with veilset.aio.follow(url, "members"):
                    pytest.fail("there is nothing to follow")

            tasks = [asyncio.create_task(follow()), asyncio.create_task(veilset.aio.open(url, "members"))]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*tasks, return_exceptions=True)
            )
            silent.close()

        asyncio.run(main())
    assert followers() == []


@pytest.mark.parametrize("late", [True, False], ids=["made after", "made before"])
def test_a_follower_that_nobody_waits_for_is_closed(late: bool, valkey_url: str, set_name: str) -> None:
    """Cancelled before the thread had made it, and between that and the await's return."""
    publish(valkey_url, release(set_name, 1))
    may_make, made = threading.Event(), threading.Event()

    def make() -> veilset.Follower:
        may_make.wait()
        follower = veilset.follow(valkey_url, set_name, poll_seconds=NEVER)
        made.set()
        return follower

    async def main() -> None:
        task = asyncio.create_task(AsyncFollower(make).__aenter__())
        await asyncio.sleep(0.05)
        if not late:
            may_make.set()
            made.wait()  # the loop stands still: it cannot have seen the result
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_make.set()
        await until(made.is_set)

    asyncio.run(main())
    wait_until(lambda: followers() == [])


def test_cancelling_the_body_closes_the_follower(valkey_url: str, set_name: str) -> None:
    publish(valkey_url, release(set_name, 1))

    async def main() -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with veilset.aio.follow(valkey_url, set_name, poll_seconds=NEVER):
                inside.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(body())
        await inside.wait()
        assert len(followers()) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert followers() == []


def test_redis_away_is_an_error_as_ever() -> None:
    with pytest.raises(Unavailable):
        asyncio.run(veilset.aio.open("redis://127.0.0.1:1/0", "members"))
