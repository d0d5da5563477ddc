"""Uploads of a set that is busy wait without a thread: whatever waits there, other sets go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from veilset.v1 import membership_pb2 as pb
from veilset_server.rpc.streams import ClientStreams
from veilset_server.rpc.turns import Turns
from veilset_server.rpc.upload import UploadStream
from veilset_server.rpc.upload_elements import ElementUpload

WORKERS = 2
SECONDS = 20.0


class Described:
    """A set of that name; stands for a StoredSet and its description."""

    def __init__(self, name: str) -> None:
        self.description, self.name = self, name


class BusyIngest:
    """Ingest as UploadStream uses it: everything about the set ``busy`` waits until ``done``."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.waiting = 0

    def finish(self, session: Any, *_: object) -> int:
        """Make it part of the set."""
        if session.stored.name == "busy":
            self.waiting += 1
            assert self.done.wait(SECONDS)
        return 0

    def close(self, _: object) -> None:
        """Let go."""


class Upload(ElementUpload):
    """The kind of upload, with sessions that hold nothing."""

    def open(self, ingest: Any, request: pb.AddElementsRequest, principal: object) -> Any:
        """A session on the named set."""
        if request.open.upload_id == "waits":
            ingest.waiting += 1
            assert ingest.done.wait(SECONDS)
        return type("Session", (), {"stored": Described(request.open.set_name), "finished": False})()

    def opened(self, session: object) -> pb.AddElementsResponse:
        """The answer to open."""
        return pb.AddElementsResponse()


@contextmanager
def served() -> Iterator[tuple[BusyIngest, ThreadPoolExecutor]]:
    """An ingest and two worker threads for it; the busy set is let go at the end."""
    ingest = BusyIngest()
    with ThreadPoolExecutor(WORKERS) as executor:
        try:
            yield ingest, executor
        finally:
            ingest.done.set()


async def whole(uploads: UploadStream, set_name: str, upload_id: str) -> int:
    """An upload of nothing, from open to finish; returns the number of answers."""

    async def requests() -> AsyncIterator[pb.AddElementsRequest]:
        yield pb.AddElementsRequest(open=pb.OpenUpload(set_name=set_name, upload_id=upload_id))
        yield pb.AddElementsRequest(finish=pb.FinishUpload())

    return len([answer async for answer in uploads.serve(requests(), Upload())])


@pytest.mark.parametrize("upload_id", ["waits", "finishes"])
def test_a_busy_set_takes_one_thread(upload_id: str) -> None:
    """Ten uploads wait for it, in open or in finish; another set's opens and finishes at once."""

    async def scene(ingest: BusyIngest, executor: ThreadPoolExecutor) -> None:
        uploads = UploadStream(ingest, executor, ClientStreams(SECONDS))  # type: ignore[arg-type]
        stuck = [asyncio.create_task(whole(uploads, "busy", upload_id)) for _ in range(10)]
        while not ingest.waiting:
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(whole(uploads, "idle", "u"), SECONDS / 2) == 2
        assert ingest.waiting == 1
        ingest.done.set()
        assert await asyncio.gather(*stuck) == [2] * 10

    with served() as (ingest, executor):
        asyncio.run(scene(ingest, executor))


def test_a_cut_stream_keeps_its_turn_until_its_thread_is_done() -> None:
    """Or each cut would let one more thread wait for the set."""

    async def scene(ingest: BusyIngest, executor: ThreadPoolExecutor) -> None:
        uploads = UploadStream(ingest, executor, ClientStreams(SECONDS))  # type: ignore[arg-type]
        stuck = [asyncio.create_task(whole(uploads, "busy", "finishes")) for _ in range(10)]
        while not ingest.waiting:
            await asyncio.sleep(0.01)
        for task in stuck:
            task.cancel()
        assert await asyncio.wait_for(whole(uploads, "idle", "u"), SECONDS / 2) == 2
        assert ingest.waiting == 1
        ingest.done.set()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*stuck, return_exceptions=True)
        )

    with served() as (ingest, executor):
        asyncio.run(scene(ingest, executor))


def test_turns_are_forgotten_once_nobody_wants_them() -> None:
    """Keys are names that callers give."""

    async def scene() -> None:
        turns = Turns()
        order: list[str] = []

        async def take(key: str, name: str) -> None:
            async with turns.of(key):
                order.append(name)
                await asyncio.sleep(0)
                order.append(name)

        await asyncio.gather(take("a", "first"), take("a", "second"), take("b", "other"))
        assert [name for name in order if name != "other"] == ["first", "first", "second", "second"]
        assert not turns._turns

    asyncio.run(scene())
