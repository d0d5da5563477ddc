"""How old a release is, by the reader's own clock, and the refusal of one that is too old.

The service writes the time into the signed header, so no one can make an old release look new. The reader's clock decides
the rest. One that is behind the service's makes releases look younger, at worst of age 0, and is logged; one that is set back
while the program runs does not, as the time that passed since the release was opened is measured by a clock that only goes
forward.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from veilset.errors import StaleRelease, must_be

Clock = Callable[[], float]
LONGEST_AGE_SECONDS = 3.2e9  # a century
AHEAD_SECONDS = 5.0
"""By how much two clocks may differ without a word; those that a network keeps differ by less."""

_log = logging.getLogger("veilset")


def iso_time(at_us: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC, to the second; None for 0 and None, which mean unknown or never."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds") if at_us else None


class ReleaseAge:
    """The age of a release made at ``created_at_us`` (microseconds since 1970, UTC), from now on. Thread-safe.

    wall: seconds since 1970. monotonic: seconds since any moment.
    """

    def __init__(self, created_at_us: int, wall: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._created = created_at_us / 1e6
        self._wall, self._monotonic = wall, monotonic
        self._opened = monotonic()
        self._when_opened = max(0.0, wall() - self._created)

    @property
    def seconds(self) -> float:
        """Seconds, at least 0 and at least what passed since this was made."""
        passed = self._monotonic() - self._opened
        return max(self._wall() - self._created, self._when_opened + passed)


def check_max_age(max_age_seconds: float | None) -> float | None:
    """Return it if it is None or a number of seconds above 0. Raises InvalidInput."""
    if max_age_seconds is not None and not 0 < max_age_seconds <= LONGEST_AGE_SECONDS:
        raise must_be("max_age_seconds", f"a number in (0, {LONGEST_AGE_SECONDS:g}]", max_age_seconds)
    return max_age_seconds


def refuse_stale(name: str, age_seconds: float, max_age_seconds: float | None) -> None:
    """Raise StaleRelease if the release ``name`` is older than it may be."""
    if max_age_seconds is not None and not age_seconds <= max_age_seconds:
        raise StaleRelease(
            f"release {name}: {age_seconds:.0f} s old, at most {max_age_seconds:g} s were asked for",
            release=name,
            age_seconds=f"{age_seconds:.0f}",
            max_age_seconds=f"{max_age_seconds:g}",
        )


def tell_if_ahead(name: str, created_at_us: int, max_age_seconds: float | None, wall: Clock = time.time) -> None:
    """Log a warning where the release ``name`` is of the future and its age is to be limited: the limit then comes late."""
    ahead = created_at_us / 1e6 - wall()
    if max_age_seconds is not None and ahead > AHEAD_SECONDS:
        _log.warning(
            "veilset: warning: release %s was made %.0f s in the future by this machine's clock: that clock or the service's is "
            "wrong, and a release may be %.0f s older than max_age_seconds before it is refused",
            name,
            ahead,
            ahead,
        )
