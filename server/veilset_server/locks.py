"""One lock for each key, kept while a thread holds it or waits for it.

The order in which they are taken, so that no two threads ever wait for each other: a set's lock (by its id) first, then the
lock of a name or of a budget account, never both of these.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lock:
    lock: threading.RLock = field(default_factory=threading.RLock)
    wanted: int = 0


class KeyedLocks:
    """``with locks[key]:`` is the block in which no other thread has ``key``; re-entrant. A key that no thread holds or waits for
    is forgotten, as keys may be names that callers give."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[Hashable, _Lock] = {}

    def __getitem__(self, key: Hashable) -> AbstractContextManager[None]:
        return self._held(key)

    def __len__(self) -> int:
        return len(self._locks)

    def within(self, key: Hashable, seconds: float) -> AbstractContextManager[None]:
        """The same. Raises TimeoutError where it takes longer to come to it."""
        return self._held(key, min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    @contextmanager
    def _held(self, key: Hashable, seconds: float = -1) -> Iterator[None]:
        with self._guard:
            found = self._locks.setdefault(key, _Lock())
            found.wanted += 1
        try:
            if not found.lock.acquire(timeout=seconds):
                raise TimeoutError
            try:
                yield
            finally:
                found.lock.release()
        finally:
            with self._guard:
                found.wanted -= 1
                if not found.wanted:
                    del self._locks[key]
