"""Places for callers whom nobody knows. They are few, and none of them can be kept from whoever comes next."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Places:
    """At most ``in_all`` places, and ``of_one`` of them for one address. Thread-safe.

    Whoever comes gets one. Where none is left it is taken from the address that holds most, the one it has held longest: so
    a crowd at one address never costs another address its place, and whoever is quick is gone before its turn comes.
    """

    def __init__(self, in_all: int, of_one: int) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._lock = threading.Lock()
        self._held: defaultdict[str, dict[object, Callable[[], None]]] = defaultdict(dict)  # the longest held first

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    @contextmanager
    def take(self, address: str, displace: Callable[[], None]) -> Iterator[None]:
        """A place while the block runs. displace: ends what the block does; called at most once, from any thread, and may
        neither wait nor fail.
        """
        place = object()
        with self._lock:
            if len(self._held[address]) >= self._of_one:
                self._displace(address)
            elif len(self) >= self._in_all:
                self._displace(max(self._held, key=lambda held: len(self._held[held])))
            self._held[address][place] = displace
        try:
            yield
        finally:
            with self._lock:
                self._drop(address, place)

    def _displace(self, address: str) -> None:
        place, displace = next(iter(self._held[address].items()))
        displace()
        self._drop(address, place)

    def _drop(self, address: str, place: object) -> None:
        held = self._held.get(address, {})
        held.pop(place, None)
        if not held:
            self._held.pop(address, None)
