"""A lock per key, made when first asked for."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable


class KeyedLocks:
    """``locks[key]`` is always the same re-entrant lock for the same key."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[Hashable, threading.RLock] = defaultdict(threading.RLock)

    def __getitem__(self, key: Hashable) -> threading.RLock:
        with self._guard:
            return self._locks[key]
