"""What a pass over many sets does while the store, or a part of it, is away or forbids something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from veilset.errors import StoreMisconfigured, Unavailable

_REFUSALS = ("NoPermissionError", "UnknownCommand")
"""Kinds of StoreMisconfigured that concern one command or key, answered at once; others may succeed."""


class Outage:
    """Lets a pass go on where a part of the store is away (a cluster's node), but not through a time-out for each key; and
    where one command or one set's keys are refused."""

    MOST = 3

    def __init__(self) -> None:
        self.sets: set[str] = set()
        self._away = 0
        self._error: Unavailable | None = None

    @contextmanager
    def of(self, set_name: str) -> Iterator[None]:
        """Keep an Unavailable for later, unless it is one too many."""
        try:
            yield
        except Unavailable as error:
            self._error = error
            self.sets.add(set_name)
            self._away += not _is_refusal(error)
            if self._away >= self.MOST:
                raise

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep what refuses a step, so that the steps behind it are taken."""
        try:
            yield
        except StoreMisconfigured as error:
            if not _is_refusal(error):
                raise
            self._error = error

    def tell(self) -> None:
        """Raise what was kept."""
        if self._error is not None:
            raise self._error


def _is_refusal(error: Unavailable) -> bool:
    return isinstance(error, StoreMisconfigured) and error.details.get("kind") in _REFUSALS
