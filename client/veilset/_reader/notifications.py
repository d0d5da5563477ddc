"""Announcements of new releases: the set's channel in Redis. They are hints; a follower looks at Redis at intervals anyway."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import RedisClient, connect_redis, transient
from veilset._reader.redis_url import RedisUrl
from veilset.errors import Unavailable

_SLICE_SECONDS = 0.25
"""Longest time until ``stop`` is noticed."""
_MESSAGES_AT_ONCE = 1000
"""Messages that are read before Redis is looked at, even if there are more."""


class Notifications:
    """The channel of one set; `wait` only waits while Redis is away or refuses the subscription.

    stop: ends every wait. For one thread, except `interrupt`.
    """

    def __init__(self, url: RedisUrl, set_name: str, stop: threading.Event) -> None:
        self._url = url
        self._channel = keys.channel(set_name)
        self._stop = stop
        self._client: RedisClient | None = None
        self._subscription: Any = None
        self._confirmed = False

    def listen(self) -> None:
        """Subscribe, unless that is done; later announcements end `wait`."""
        if self._subscription is not None:
            return
        try:
            with transient():
                self._client = client = connect_redis(self._url, retries=0)
                if self._stop.is_set():  # after the assignment: either `interrupt` sees the client, or we see ``stop``
                    return
                self._subscription = client.pubsub()  # type: ignore[no-untyped-call]
                self._subscription.subscribe(self._channel)
        except Unavailable:
            self.close()  # the next call tries again

    def wait(self, seconds: float) -> None:
        """Until something is announced, the connection breaks, ``seconds`` are over, or ``stop`` is set."""
        deadline = time.monotonic() + seconds
        try:
            while not self._stop.is_set() and (rest := deadline - time.monotonic()) > 0:
                if self._heard(min(rest, _SLICE_SECONDS)):
                    return
        except Unavailable:
            lived = self._confirmed
            self.close()
            if not lived:  # we may not listen: then we poll
                self._stop.wait(max(0.0, deadline - time.monotonic()))

    def _heard(self, seconds: float) -> bool:
        """Whether a release was announced within ``seconds``; reads up to `_MESSAGES_AT_ONCE` messages. Raises Unavailable."""
        if self._subscription is None:
            raise Unavailable("Redis: not subscribed", kind="SUBSCRIBE")
        heard = False
        deadline = time.monotonic() + seconds
        with transient():
            for _ in range(_MESSAGES_AT_ONCE):
                rest = 0.0 if heard else max(0.0, deadline - time.monotonic())
                message = self._subscription.get_message(timeout=rest)
                if not message:
                    break
                self._confirmed = True
                heard |= message["type"] == "message"
        return heard

    def interrupt(self) -> None:
        """From another thread, once ``stop`` is set: end a wait for Redis to answer."""
        client = self._client
        if client is not None:
            with suppress(Unavailable), transient():
                client.close()

    def close(self) -> None:
        """Unsubscribe and close the connection."""
        for opened in (self._subscription, self._client):
            if opened is not None:
                with suppress(Unavailable), transient():
                    opened.close()
        self._client = self._subscription = None
        self._confirmed = False
