"""What a pass over many sets does while the store, or a part of it, is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from veilset.errors import Unavailable


class Outage:
    """Lets a pass go on where a part of the store is away (a cluster's node), but not through a time-out for each key."""

    MOST = 3

    def __init__(self) -> None:
        self.sets: set[str] = set()
        self._error: Unavailable | None = None

    @contextmanager
    def of(self, set_name: str) -> Iterator[None]:
        """Keep an Unavailable for later, unless it is one too many."""
        try:
            yield
        except Unavailable as error:
            self._error = error
            self.sets.add(set_name)
            if len(self.sets) >= self.MOST:
                raise

    def tell(self) -> None:
        """Raise what was kept."""
        if self._error is not None:
            raise self._error
