"""Reading the releases of a set: from Redis, from files kept in a folder, or from one file; checked whole, ready to answer."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilset._reader.cache import ReleaseCache
from veilset._reader.fetching import (
    CheckedRelease,
    Demands,
    fetch_generation,
    make_demands,
    part_demands,
    refuse_older,
    with_earlier,
)
from veilset._reader.redis_url import RedisUrl
from veilset._reader.sources import RedisSource, ReleaseSource, is_url, open_file
from veilset._reader.view import View, make_view
from veilset._service.spec import Spec
from veilset.core.encodings.decoder import Rule
from veilset.core.params import check_name
from veilset.errors import InvalidInput, NotFound, ReleaseRejected, Unavailable, VeilsetError


@dataclass(frozen=True, slots=True)
class Found:
    """The checked releases of a generation, the base first. offline: why Redis could not be asked, if these are the newest ones
    of the folder instead."""

    parts: tuple[CheckedRelease, ...]
    offline: VeilsetError | None = None


class SetReleases:
    """Finds checked releases of one set, and remembers the highest sequence seen if it has a folder. Thread-safe.

    cache_dir: see `veilset._reader.cache`; None keeps nothing. Raises InvalidInput.
    """

    def __init__(self, set_name: str, demands: Demands, cache_dir: str | Path | None = None) -> None:
        self.set_name = check_name("set_name", set_name)
        self._demands = demands
        self._cache = None if cache_dir is None else ReleaseCache(cache_dir, set_name)

    @property
    def oldest(self) -> int:
        """The lowest sequence that is accepted: what the caller asked for, or what was seen before."""
        seen = 0 if self._cache is None else self._cache.seen(pinned=self._pinned)
        return max(self._demands.min_sequence, seen)

    def find(self, url: str | RedisUrl, sequence: int = 0) -> Found:
        """One release; 0 for the newest. With a folder, its newest release if Redis is away or empty.

        A release given by its sequence may be older than what was seen, and is taken from the folder if it is there.
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
        """`newest`, without fetching again what is in ``known``; None if both end with the same release. Raises ReleaseRejected
        if Redis points at an older one."""
        newest = known[-1].header.sequence
        sequence, demands = self._pointed_at(source, newest)
        return None if sequence == newest else self._get(source, sequence, demands, known)

    def _pointed_at(self, source: ReleaseSource, known: int = 0) -> tuple[int, Demands]:
        """The newest sequence in Redis, and what is demanded of that release."""
        demands = self._newest  # before Redis is asked: another process may meanwhile remember a newer one
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


def open_view(
    target: str | bytes | Path,
    set_name: str | None = None,
    *,
    sequence: int = 0,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    max_age_seconds: float | None = None,
    cache_dir: str | Path | None = None,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
    spec: Spec | None = None,
) -> View:
    """Fetch a release, check it whole, and make it ready to answer.

    target: a Redis URL (then set_name is needed), a path, or the bytes of a release file. sequence: 0 for the newest.
    public_keys: raw or hexadecimal Ed25519 keys that the reader trusts; with none the signature shows only that the
    release is whole. min_sequence: refuse older releases, such as one seen before. max_age_seconds: refuse a release made
    longer ago, by this machine's clock. cache_dir: a folder for the sets of one service, in which releases are kept as
    files that processes of this machine map together, and the highest sequence seen is remembered: an older release is
    refused from then on, and while Redis is away or empty the newest one kept answers (`View.offline` says so).
    rule, max_false_positive_rate, min_true_positive_rate: how to choose the threshold, see
    `core.encodings.decoder.make_decoder`. key: the secret of a keyed scheme. spec: what was agreed on; a release
    that means something else by its bits is refused. Raises InvalidInput, NotComparable (with a spec), WrongKey, NotFound,
    Unavailable, ReleaseRejected, StaleRelease, PoorUtility, StateCorrupted and StorageFull (with a cache_dir).
    """
    demands = make_demands(set_name, public_keys, min_sequence, max_age_seconds, spec)
    decision = {
        "rule": rule,
        "max_false_positive_rate": max_false_positive_rate,
        "min_true_positive_rate": min_true_positive_rate,
    }
    if is_url(target):
        if set_name is None:
            raise InvalidInput("set_name", "set_name is needed with a Redis URL")
        found = SetReleases(set_name, demands, cache_dir).find(str(target), sequence)
    else:
        if cache_dir is not None:
            raise InvalidInput(
                "cache_dir", "cache_dir applies to releases from Redis only, and a file is opened; leave it out"
            )
        with closing(open_file(target)) as source:
            found = Found(fetch_generation(source, sequence or source.latest(), demands))
    return view_of(found, key, decision)


def view_of(found: Found, key: bytes | None, decision: dict[str, Any]) -> View:
    """A view of what was found; ``decision``: rule and limits of `core.encodings.decoder.make_decoder`."""
    view = make_view(found.parts, key, **decision)
    view.offline = found.offline
    return view
