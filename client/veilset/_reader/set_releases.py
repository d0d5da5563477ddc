"""The releases of one set as a reader gets them: from Redis, and from files kept here where there is a folder for them."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from veilset._reader.cache import ReleaseCache
from veilset._reader.fetching import (
    CheckedRelease,
    Demands,
    fetch_generation,
    part_demands,
    refuse_older,
    with_earlier,
)
from veilset._reader.redis_url import RedisUrl
from veilset._reader.sources import RedisSource, ReleaseSource
from veilset.core.params import check_name
from veilset.errors import NotFound, ReleaseRejected, Unavailable, VeilsetError


@dataclass(frozen=True, slots=True)
class Found:
    """The checked releases of a generation, the base first. offline: why Redis could not be asked for the newest, where this is
    the newest kept here."""

    parts: tuple[CheckedRelease, ...]
    offline: VeilsetError | None = None


class SetReleases:
    """Finds checked releases of one set, and remembers the highest sequence seen where there is a folder. Thread-safe.

    cache_dir: see `veilset._reader.cache`; None keeps nothing. Raises InvalidInput.
    """

    def __init__(self, set_name: str, demands: Demands, cache_dir: str | Path | None = None) -> None:
        self.set_name = check_name("set_name", set_name)
        self._demands = demands
        self._cache = None if cache_dir is None else ReleaseCache(cache_dir, set_name)

    @property
    def oldest(self) -> int:
        """The oldest sequence that will do: what the caller asked for, or has been seen."""
        seen = 0 if self._cache is None else self._cache.seen(pinned=self._pinned)
        return max(self._demands.min_sequence, seen)

    def find(self, url: str | RedisUrl, sequence: int = 0) -> Found:
        """One release; 0 for the newest. With a folder, the newest kept if Redis is away or empty.

        A release named by its sequence may be older than what was seen, and is taken from the folder if it is there.
        Raises NotFound, Unavailable, ReleaseRejected, StaleRelease, NotComparable, StateCorrupted, StorageFull.
        """
        try:
            if sequence and (kept := self._kept(sequence, self._demands)):
                return Found(kept)
            with closing(RedisSource(url, self.set_name)) as source:
                return Found(self._get(source, sequence, self._demands) if sequence else self.newest(source))
        except (Unavailable, NotFound) as error:
            kept = None if sequence else self.newest_kept()
            if kept is None:
                raise
            return Found(kept, error)

    def newest_kept(self) -> tuple[CheckedRelease, ...] | None:
        """The newest generation whose files pass all checks, not older than `oldest`. Raises StaleRelease, StateCorrupted."""
        if self._cache is None:
            return None
        demands = self._newest
        for sequence in self._cache.sequences():
            if parts := self._kept(sequence, demands):
                self._cache.remember(parts[-1], pinned=self._pinned)
                return parts
        return None

    def newest(self, source: ReleaseSource) -> tuple[CheckedRelease, ...]:
        """The generation of the release that Redis points at, which is not older than `oldest`."""
        return self._get(source, *self._pointed_at(source))

    def newer(self, source: ReleaseSource, known: tuple[CheckedRelease, ...]) -> tuple[CheckedRelease, ...] | None:
        """The same; None if it ends with the release that ``known`` ends with. What is in ``known`` is not fetched again. Raises
        ReleaseRejected if it is older."""
        newest = known[-1].header.sequence
        sequence, demands = self._pointed_at(source, newest)
        return None if sequence == newest else self._get(source, sequence, demands, known)

    def _pointed_at(self, source: ReleaseSource, known: int = 0) -> tuple[int, Demands]:
        """The newest sequence in Redis, and what is demanded of that release."""
        demands = self._newest  # before Redis is asked: another process may remember a newer one than we are told of
        sequence = source.latest()
        refuse_older(self.set_name, sequence, max(known, demands.min_sequence))
        return sequence, demands

    def _get(
        self, source: ReleaseSource, sequence: int, demands: Demands, known: tuple[CheckedRelease, ...] = ()
    ) -> tuple[CheckedRelease, ...]:
        """The generation up to a release, each part from its file if that is whole."""
        refuse_older(self.set_name, sequence, demands.min_sequence)
        cache = self._cache
        if cache is None:
            return fetch_generation(source, sequence, demands, known)

        def part(earlier: int) -> CheckedRelease:
            wanted = part_demands(demands)
            return cache.load(earlier, wanted) or cache.store(source, earlier, wanted)

        newest = cache.load(sequence, demands) or cache.store(source, sequence, demands)
        parts = with_earlier(newest, part)
        cache.remember(newest, pinned=self._pinned)
        return parts

    @property
    def _newest(self) -> Demands:
        return replace(self._demands, min_sequence=self.oldest)

    def _kept(self, sequence: int, demands: Demands) -> tuple[CheckedRelease, ...] | None:
        """The generation up to a release if all of it is kept here and passes its checks."""
        cache = self._cache
        if cache is None or (newest := cache.load(sequence, demands)) is None:
            return None

        def part(earlier: int) -> CheckedRelease:
            found = cache.load(earlier, part_demands(demands))
            if found is None:
                raise NotFound("not kept here")
            return found

        with suppress(NotFound, ReleaseRejected):
            return with_earlier(newest, part)
        return None

    @property
    def _pinned(self) -> bool:
        return bool(self._demands.public_keys)
