"""Opening and following for asyncio programs: the same work in threads, so that the event loop never waits.

Views answer from memory and are asked directly: ``element in view`` takes microseconds. For a long list use
``await asyncio.to_thread(view.contains_many, elements)``.

A cancelled call returns at once. Its thread ends when Redis has answered or its time is up, and closes what it opened.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from veilset._reader.follower import Follower, Questions
from veilset._reader.follower import follow as follow_in_thread
from veilset._reader.reader import open_view
from veilset._reader.view import View


async def open(target: str | bytes | Path, set_name: str | None = None, **options: Any) -> View:  # noqa: A001 - `aio.open`
    """`veilset.open`, awaited: the same arguments and errors."""
    return await asyncio.to_thread(open_view, target, set_name, **options)


class AsyncFollower(Questions):
    """`veilset.Follower` for asyncio, made by `follow`: ``async with`` starts and ends it.

    The questions are answered at once, from memory, and raise StaleRelease.
    """

    def __init__(self, make: Callable[[], Follower]) -> None:
        self._make = make
        self._follower: Follower | None = None

    @property
    def _started(self) -> Follower:
        if self._follower is None:
            raise RuntimeError("an AsyncFollower is used inside its 'async with' block")
        return self._follower

    @property
    def view(self) -> View:
        """As `Follower.view`."""
        return self._started.view

    @property
    def sequence(self) -> int:
        """As `Follower.sequence`."""
        return self._started.sequence

    @property
    def age_seconds(self) -> float:
        """As `Follower.age_seconds`."""
        return self._started.age_seconds

    @property
    def last_error(self) -> Exception | None:
        """As `Follower.last_error`."""
        return self._started.last_error

    async def refresh(self) -> View:
        """As `Follower.refresh`, awaited."""
        return await asyncio.to_thread(self._started.refresh)

    async def close(self) -> None:
        """As `Follower.close`, awaited; also stops one that is just starting."""
        if self._follower is not None:
            await asyncio.to_thread(self._follower.close)

    async def __aenter__(self) -> AsyncFollower:
        handover = _Handover(self._make)
        try:
            await asyncio.to_thread(handover.run)
        except BaseException:
            handover.abandon()
            raise
        self._follower = handover.follower
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def follow(
    url: str, set_name: str, *, on_release: Callable[[View], object] | None = None, **options: Any
) -> AsyncFollower:
    """`veilset.follow` for asyncio: ``async with veilset.aio.follow(url, "customers") as follower``.

    on_release: called with the view of each newer release, in the event loop. The other arguments and the errors are those of
    `veilset.follow`; the errors come from ``async with``.
    """

    def make() -> Follower:
        return follow_in_thread(url, set_name, on_release=announce, **options)

    announce = None if on_release is None else _in_loop(on_release)
    return AsyncFollower(make)


def _in_loop(on_release: Callable[[View], object]) -> Callable[[View], None]:
    loop = asyncio.get_running_loop()

    def announce(view: View) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_release, view)

    return announce


class _Handover:
    """A follower made in one thread for a task that may have been cancelled meanwhile."""

    def __init__(self, make: Callable[[], Follower]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._abandoned = False
        self.follower: Follower | None = None

    def run(self) -> None:
        made = self._make()
        with self._lock:
            self.follower, unwanted = made, self._abandoned
        if unwanted:
            made.close()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned, made = True, self.follower
        if made is not None:  # it was made before the task was cancelled
            threading.Thread(target=made.close, name="close follower", daemon=True).start()
