"""How a client's stream ends when the service stops or the client is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from veilset.errors import Unavailable
from veilset_server.rpc.streams import ClientStreams

FOREVER = 1e6


async def messages(*given: int) -> AsyncIterator[int]:
    """At once, and then the end."""
    for number in given:
        yield number


async def silence() -> AsyncIterator[int]:
    """Never a word."""
    await asyncio.Event().wait()
    yield 0


async def next_fails(streams: ClientStreams, requests: AsyncIterator[int]) -> str:
    """The kind of Unavailable that waiting for the next message ends with."""
    with pytest.raises(Unavailable) as ended:
        await streams.next(requests)
    return ended.value.details["kind"]


def test_messages_come_in_order_and_end() -> None:
    """None is the end."""

    async def run() -> None:
        streams, given = ClientStreams(FOREVER), messages(1, 2)
        assert [await streams.next(given) for _ in range(3)] == [1, 2, None]

    asyncio.run(run())


def test_silence_ends_a_stream() -> None:
    """After the idle time."""

    async def run() -> None:
        assert await next_fails(ClientStreams(0.01), silence()) == "IDLE"

    asyncio.run(run())


def test_draining_ends_silent_streams_and_lets_busy_ones_go_on() -> None:
    """Those that wait when it begins, and those that come to wait later."""

    async def run() -> None:
        streams, busy = ClientStreams(FOREVER), messages(1, 2)
        waiting = asyncio.ensure_future(next_fails(streams, silence()))
        await asyncio.sleep(0)
        assert not waiting.done()
        streams.drain(FOREVER)
        assert await waiting == "DRAINING"
        assert await next_fails(streams, silence()) == "DRAINING"
        assert [await streams.next(busy) for _ in range(3)] == [1, 2, None]

    asyncio.run(run())


def test_no_stream_goes_on_beyond_the_drain_time() -> None:
    """Even one whose producer never pauses."""

    async def run() -> None:
        streams, busy = ClientStreams(FOREVER), messages(1, 2)
        assert await streams.next(busy) == 1
        streams.drain(-1.0)
        assert await next_fails(streams, busy) == "DRAINING"

    asyncio.run(run())


def test_closed_waits_for_all_that_hold_something() -> None:
    """However the block of one ends."""

    async def run() -> None:
        streams, ends = ClientStreams(FOREVER), [asyncio.Event() for _ in range(3)]
        await streams.closed()

        async def hold(number: int) -> None:
            with streams.open():
                await ends[number].wait()
                if number:
                    raise LookupError

        holding = [asyncio.ensure_future(hold(number)) for number in range(3)]
        await asyncio.sleep(0)
        closed = asyncio.ensure_future(streams.closed())
        holding[2].cancel()
        for end in ends[:2]:
            await asyncio.sleep(0)
            assert not closed.done()
            end.set()
        await closed
        await asyncio.gather(*holding, return_exceptions=True)

    asyncio.run(run())
